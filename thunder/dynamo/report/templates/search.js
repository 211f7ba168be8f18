// Finds a text in everything that the page holds, visible or not.

class Search {
  // `texts` is a list of { place, text }, each a text of many lines.
  constructor(texts) {
    this.texts = texts.map(({ place, lines }) => {
      const starts = new Int32Array(lines.length);
      let offset = 0;
      lines.forEach((line, row) => {
        starts[row] = offset;
        offset += line.length + 1;
      });
      return { place, starts, text: lines.join("\n").toLowerCase() };
    });
    this.clear();
  }

  clear() {
    this.query = "";
    this.places = [];
    this.rows = [];
    this.columns = [];
    this.current = -1;
  }

  get count() {
    return this.rows.length;
  }

  find(query) {
    this.clear();
    this.query = query.toLowerCase();
    if (!this.query) return;
    for (const { place, starts, text } of this.texts) {
      let row = 0;
      for (let at = text.indexOf(this.query); at >= 0; at = text.indexOf(this.query, at + this.query.length)) {
        row = Search.rowOf(starts, at, row);
        this.places.push(place);
        this.rows.push(row);
        this.columns.push(at - starts[row]);
      }
    }
  }

  // The last row that starts at or before an offset; rows before `from` are not looked at.
  static rowOf(starts, offset, from) {
    let low = from, high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  step(by) {
    if (this.count) this.current = this.current < 0 ? (by > 0 ? 0 : this.count - 1) : (this.current + by + this.count) % this.count;
    return this.here;
  }

  get here() {
    if (this.current < 0) return null;
    return { place: this.places[this.current], row: this.rows[this.current], column: this.columns[this.current] };
  }

  rowsOf(place) {
    return this.rows.filter((_, index) => this.places[index] === place);
  }
}
