// Rows of equal height of which only the visible ones are in the document.

const OVERSCAN = 8;

class Rows {
  // `draw(element, row)` fills an empty element with what row number `row` shows.
  constructor(box, height, draw) {
    this.box = box;
    this.height = height;
    this.draw = draw;
    this.count = 0;
    this.cursor = -1;
    this.shown = new Map();
    this.space = document.createElement("div");
    this.space.className = "space";
    this.space.setAttribute("role", "presentation");
    box.append(this.space);
    box.addEventListener("scroll", () => this.schedule(), { passive: true });
    new ResizeObserver(() => this.refresh()).observe(box);
  }

  resize(count, width) {
    this.count = count;
    this.space.style.height = `${count * this.height}px`;
    if (width) this.space.style.width = width;
    this.refresh();
  }

  schedule() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.update();
    });
  }

  // Draws everything that is visible anew.
  refresh() {
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.update();
  }

  update() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - OVERSCAN);
    const fitting = Math.ceil(this.box.clientHeight / this.height) + 2 * OVERSCAN;
    const last = Math.min(this.count, first + fitting);
    for (const [row, element] of this.shown) {
      if (row < first || row >= last) {
        element.remove();
        this.shown.delete(row);
      }
    }
    const fresh = document.createDocumentFragment();
    for (let row = first; row < last; row++) {
      if (this.shown.has(row)) continue;
      const element = document.createElement("div");
      element.className = "row";
      element.id = `${this.box.id}-${row}`;
      element.dataset.row = row;
      element.setAttribute("aria-posinset", row + 1);
      element.setAttribute("aria-setsize", this.count);
      element.style.top = `${row * this.height}px`;
      this.draw(element, row);
      element.classList.toggle("cursor", row === this.cursor);
      this.shown.set(row, element);
      fresh.append(element);
    }
    this.space.append(fresh);
    this.box.setAttribute("aria-activedescendant", this.shown.has(this.cursor) ? `${this.box.id}-${this.cursor}` : "");
  }

  get top() {
    return Math.min(this.count - 1, Math.floor((this.box.scrollTop + 1) / this.height));
  }

  isVisible(row) {
    const top = row * this.height;
    return top >= this.box.scrollTop && top + this.height <= this.box.scrollTop + this.box.clientHeight;
  }

  // Brings a row into view, a third of the way down unless it is visible already.
  reveal(row) {
    if (!this.isVisible(row)) {
      this.box.scrollTop = row * this.height - this.box.clientHeight / 3;
    }
    this.update();
  }

  moveTo(row) {
    this.cursor = Math.max(0, Math.min(this.count - 1, row));
    const top = this.cursor * this.height;
    const room = this.box.clientHeight - this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top > this.box.scrollTop + room) this.box.scrollTop = top - room;
    this.refresh();
  }

  // The row that a key leads to from the cursor, or -1.
  target(key) {
    const from = this.cursor < 0 ? this.top - 1 : this.cursor;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page }[key];
    if (step) return Math.max(0, Math.min(this.count - 1, from + step));
    return { Home: 0, End: this.count - 1 }[key] ?? -1;
  }
}
