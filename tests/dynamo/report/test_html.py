"""The HTML page: what is on it, and what a real browser makes of it."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest
import torch
from pygments.lexers import PythonLexer

from thunder.benchmark import Settings, TorchEagerSpecification
from thunder.cli import main
from thunder.dynamo.report import (
    fx_report,
    highlighting,
    read_report,
    thunderfx_benchmark_report,
)
from thunder.dynamo.report.html import render_page, save_page
from thunder.dynamo.report.kernel_code import Language, kernel_code
from thunder.dynamo.report.page import Page, PageLine, PageListing, PageNote, PageRegion, PageSource

ATEN = {"executors": ["aten"]}
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "\"'`> <!-- \u202e\x00\ud800\u2028",
)


def program(x, w):
    y = (x * 2).sin()
    z = torch.sinc(y @ w)
    torch._dynamo.graph_break()
    return (z.exp() + 1).sum()


def inputs():
    return torch.rand(4, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)


def written(folder, name="page.html", **options):
    return fx_report(program, *inputs()).save_html(folder / name, thunder_options=options)


def data_of(text):
    """Returns what the page's script reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def hostile_page():
    text = "\n".join(HOSTILE)
    line = PageLine(text=text, source=0, fusion=0, kernels=(0,))
    listing = PageListing(title=text, lines=(line,), fusion=0)
    fusion = PageRegion(
        name=text, title=text, kind="fusion", summary=text, listings=(listing,), fusion=0
    )
    return Page(
        program=text,
        notes=(PageNote(label="break", text=text, details=(text,)),),
        regions=(
            PageRegion(
                name=text,
                title=text,
                kind="graph",
                summary=text,
                listings=(PageListing(title=text, lines=(line,)),),
                parts=(fusion,),
            ),
        ),
        sources=(PageSource(file=text, line=1, function=text, code=text),),
        environment=(("system", text),),
    )


def long_page(lines=50_000):
    def line(number):
        text = f'    t{number} = torch.ops.aten.add.Tensor(t{number - 1}, 1)  # "cpu f32[4]"'
        return PageLine(text=text, source=number % 500)

    listing = PageListing(title="graph0", lines=tuple(map(line, range(lines))))
    region = PageRegion(
        name="graph0", title="graph0", kind="graph", summary="", listings=(listing,)
    )
    sources = [PageSource(file="a.py", line=n, function="f", code=f"x{n}") for n in range(500)]
    return Page(program="long", notes=(), regions=(region,), sources=tuple(sources))


# ---- without a browser ---------------------------------------------------------------------


def test_tree_goes_from_breaks_to_segments(tmp_path):
    text = written(tmp_path, exclude_ops=[torch.sinc], **ATEN).read_text()
    rows = [(row["depth"], row["kind"], row["title"]) for row in data_of(text)["rows"]]
    assert (0, "break", "break") in rows
    assert (1, "split", "split") in rows
    assert (1, "segment", "thunder_0") in rows
    assert [title for depth, _, title in rows if depth == 0][1:] == ["graph0", "graph1"]


def test_lines_of_traces_cite_the_program(tmp_path):
    panes = data_of(written(tmp_path, **ATEN).read_text())["panes"]
    source, trace = panes["source"], panes["trace"]
    codes = dict(zip(source["sources"], source["text"].split("\n"), strict=True))
    cited = {
        line.split("(")[0].strip(): codes[number]
        for line, number in zip(trace["text"].split("\n"), trace["sources"], strict=True)
        if number >= 0
    }
    assert cited["sin = torch.ops.aten.sin.default"] == "y = (x * 2).sin()"
    assert cited["exp = torch.ops.aten.exp.default"] == "return (z.exp() + 1).sum()"


def test_pages_of_two_runs_are_equal(tmp_path):
    options = {"exclude_ops": [torch.sinc], **ATEN}
    pages = [written(tmp_path, f"{n}.html", **options).read_bytes() for n in range(2)]
    assert pages[0] == pages[1]
    assert not re.search(rb"0x[0-9a-f]{6}|/root|/home|/tmp", pages[0])


def test_pages_of_two_runs_with_kernels_are_equal(tmp_path):
    pages = []
    for number in range(2):
        torch._dynamo.reset()
        pages.append(written(tmp_path, f"{number}.html", executors=["inductor"]).read_bytes())
    assert pages[0] == pages[1]


def test_kernels_know_their_operators(tmp_path):
    view = data_of(written(tmp_path, executors=["inductor"]).read_text())
    kernels = [row for row in view["rows"] if row["kind"] == "kernel"]
    assert any("sin" in row["title"] and row["words"] for row in kernels)
    fusions = [row["fusion"] for row in view["rows"] if row["kind"] == "fusion"]
    assert fusions == list(range(len(fusions)))
    assert len(fusions) == 4  # forward and backward of two graphs
    by_fusion = {row["fusion"]: row for row in kernels if row["words"]}
    assert set(by_fusion) == set(fusions)


def test_kernel_code_is_portable():
    code = kernel_code(
        "# AOT ID: ['12_forward']\n"
        "# kernel path: /somewhere/torchinductor/ab/cab.py\n"
        "# Graph fragment:\n"
        "#   %sin : Tensor = call_function[target=torch.ops.aten.sin.default](args = (%x,))\n"
        "triton_0 = async_compile.triton('triton_0', '''\n"
        "body\n"
        "''', device_str='cuda')\n"
        "    def call(self, args):\n"
        "        triton_0.run(x, stream=stream0)\n"
    )
    assert code.lines[:2] == ("# AOT ID: ['forward']", "# kernel path: cab.py")
    (kernel,) = code.kernels
    assert (kernel.name, kernel.nodes) == ("triton_0", ("sin",))
    assert [number for number, owners in enumerate(code.owners) if owners] == [4, 5, 6, 8]


def test_colours_end_where_a_kernels_code_ends(tmp_path):
    code = data_of(written(tmp_path, executors=["inductor"]).read_text())["panes"]["code"]
    lines = list(zip(code["text"].split("\n"), code["runs"].split("\n"), strict=True))
    assert {run for line, run in lines if line == "class Runner:"} == {"k5p1f6"}
    cpp = [run for line, run in lines if line.startswith('extern "C"')]
    assert cpp and all(run.startswith("k6p1s3p2b4") for run in cpp)  # extern "C"  void


def test_colours_are_those_of_pygments(monkeypatch):
    """The short cut through what traces mostly consist of changes nothing."""
    tests = Path(__file__).parents[2]
    files = [Path(__file__), tests / "dynamo" / "test_excluded_ops.py"]
    files += sorted((tests / "pipeline" / "golden").iterdir())
    lines = [line for file in files for line in file.read_text().splitlines() if line.isascii()]
    assert len(lines) > 800
    languages = [Language.PYTHON] * len(lines)
    found = highlighting.highlight(lines, languages)
    monkeypatch.setattr(highlighting, "_PythonLexer", PythonLexer)
    expected = highlighting.highlight(lines, languages)
    for line, run, wanted in zip(lines, found, expected, strict=True):
        assert run == wanted, line


def test_graphs_alone_and_graphs_that_fail(tmp_path):
    report = fx_report(torch.sin, torch.ones(2))
    text = report.save_html(tmp_path / "a.html", compile_graphs=False).read_text()
    assert [row["kind"] for row in data_of(text)["rows"]] == ["graph"]

    def fail(graph_module):
        raise ValueError("no way")

    options = {**ATEN, "transforms": [fail]}
    text = report.save_html(tmp_path / "b.html", thunder_options=options).read_text()
    rows = data_of(text)["rows"]
    assert [row["kind"] for row in rows][:2] == ["graph", "failed"]
    assert any("no way" in row["words"] for row in rows)


def test_benchmarks_have_bars(tmp_path):
    report = thunderfx_benchmark_report(
        program,
        tmp_path,
        *inputs(),
        thunder_options=ATEN,
        against=[TorchEagerSpecification()],
        settings=Settings(seconds=0.2),
        verify=False,
        show=False,
    )
    view = data_of(report.save_html(tmp_path / "new.html").read_text())
    timed = [row for row in view["rows"] if "timing" in row]
    assert [row["title"] for row in timed] == ["graph0", "graph1"]
    bars = [bar for row in timed for bar in row["timing"]["bars"]]
    assert max(bar["share"] for bar in bars) == 1.0
    assert all(bar["time"] for bar in bars)
    assert view["panes"]["trace"]["text"]
    again = data_of(read_report(tmp_path).save_html(tmp_path / "old.html").read_text())
    assert not again["panes"]["trace"]["text"]
    assert [row["timing"]["ratio"] for row in again["rows"] if "timing" in row] == [
        row["timing"]["ratio"] for row in timed
    ]


def test_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import torch\ndef f():\n    return torch.ones(2).exp()\n")
    assert main(["report", "mine.py:f", "--graphs-only", "--html", "out.html"]) == 0
    assert "Tensor" not in data_of((tmp_path / "out.html").read_text())["panes"]["code"]["text"]


def test_replaces_links_instead_of_following_them(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "page.html").symlink_to(tmp_path / "victim")
    save_page(hostile_page(), tmp_path / "page.html")
    assert (tmp_path / "victim").read_text() == "precious"


# ---- in a browser --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium():
    """A function that opens a page in one browser; skips where there is none."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("no Chromium: `make browser` installs one, and .ci/run calls it")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is in the extra `test`")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield Browser(browser)
    finally:
        browser.quit()


class Browser:
    """The page in a browser, as a user sees it."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path, *, scheme="light", size=(1280, 800)):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.set_window_size(*size)
        self.driver.get(path.as_uri())
        self.until("return document.documentElement.dataset.ready", "true")
        return self

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, script, wanted):
        """Waits, briefly, until a script returns what is wanted."""
        deadline = time.monotonic() + 10
        while (found := self.run(script)) != wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        assert found == wanted

    def click(self, pane, text):
        """Scrolls to a line and clicks it."""
        lines = f"JSON.parse(document.getElementById('data').textContent).panes.{pane}.text"
        row = self.run(f"return {lines}.split('\\n').findIndex(line => line.includes({text!r}))")
        self.run(f"document.getElementById('{pane}').scrollTop = {max(0, row - 3)} * 19")
        self.until(f"return !!document.getElementById('{pane}-{row}')", True)
        self.run(f"document.getElementById('{pane}-{row}').click()")

    def marked(self, pane):
        """Returns the marked lines of a pane that are in sight."""
        return self.run(
            "return [...document.querySelectorAll(`#${arguments[0]} .row.related, "
            "#${arguments[0]} .row.chosen`)].map(row => row.textContent)",
            pane,
        )

    def search(self, text):
        self.run(
            "const box = document.getElementById('query'); box.value = arguments[0];"
            "document.getElementById('search').requestSubmit()",
            text,
        )
        return self.run("return document.getElementById('count').textContent")

    def press(self, selector, key):
        self.driver.find_element("css selector", selector).send_keys(key)

    @property
    def nodes(self):
        return self.run("return document.querySelectorAll('*').length")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A page with generated code."""
    folder = tmp_path_factory.mktemp("html")
    return written(folder, executors=["inductor"], exclude_ops=[torch.sinc])


@pytest.mark.browser
def test_trace_line_leads_everywhere(chromium, kernels):
    page = chromium.open(kernels)
    page.click("trace", "aten.sin.default")
    assert page.marked("source") == [line for line in page.marked("source") if "sin()" in line]
    assert page.marked("source")
    assert any("aten.mul" in line for line in page.marked("trace"))
    assert any("sin()" in line for line in page.marked("code"))
    assert any("inductorFusion0" in row for row in page.marked("tree"))
    page.press("body", "\ue00c")  # Escape
    assert not page.marked("source")
    assert not page.marked("code")


@pytest.mark.browser
def test_source_and_kernels_lead_back(chromium, kernels):
    page = chromium.open(kernels)
    page.click("source", "(z.exp() + 1).sum()")
    assert any("exp" in line for line in page.marked("trace"))
    assert any("cpp_fused" in line or "exp()" in line for line in page.marked("code"))
    page.click("code", "cpp_fused_mul_sin_0(")
    assert [line for line in page.marked("source") if "(x * 2).sin()" in line]
    assert [line for line in page.marked("trace") if "aten.sin.default" in line]
    assert not [line for line in page.marked("trace") if "aten.mm" in line]


@pytest.mark.browser
def test_hover_shows_and_lets_go(chromium, kernels):
    page = chromium.open(kernels)
    page.run(
        "document.querySelector('#source .row:not(.heading)')"
        ".dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))"
    )
    assert len(page.marked("source")) == 1
    page.run("document.getElementById('source').dispatchEvent(new MouseEvent('mouseleave'))")
    assert page.marked("source") == []


@pytest.mark.browser
def test_search_counts_and_steps(chromium, kernels):
    page = chromium.open(kernels)
    view = data_of(kernels.read_text())
    texts = [view["panes"][name]["text"] for name in ("source", "trace", "code")]
    texts += [f"{row['title']}\t{row['words']}" for row in view["rows"]]
    count = sum(text.lower().count("aten.") for text in texts)
    assert count > 1
    assert page.search("ATEN.") == f"1 / {count:,}"
    assert page.run("return document.querySelectorAll('mark.here').length") == 1
    assert page.search("ATEN.") == f"2 / {count:,}"
    page.run("document.getElementById('previous').click()")
    page.run("document.getElementById('previous').click()")
    assert (
        page.run("return document.getElementById('count').textContent") == f"{count:,} / {count:,}"
    )
    assert page.search("no such thing") == "no match"


@pytest.mark.browser
def test_keyboard_is_enough(chromium, kernels):
    page = chromium.open(kernels)
    page.press("body", "/")
    assert page.run("return document.activeElement.id") == "query"
    for key in ("\ue015", "\ue015", "\ue015", " "):  # down, down, down, space
        page.press("#source", key)
    assert page.run("return document.querySelectorAll('#source .chosen.cursor').length") == 1
    assert page.marked("trace")


@pytest.mark.browser
def test_fifty_thousand_lines(chromium, tmp_path):
    page = chromium.open(save_page(long_page(), tmp_path / "long.html"))
    assert page.nodes < 1500
    page.run("const box = document.getElementById('trace'); box.scrollTop = box.scrollHeight")
    page.until("return !!document.getElementById('trace-50000')", True)
    assert "t49999" in page.run("return document.getElementById('trace-50000').textContent")
    assert page.search("t25000 =") == "1 / 1"
    assert "t25000 =" in page.run(
        "return document.querySelector('mark.here').parentElement.textContent"
    )
    assert page.search("aten.add") == "1 / 50,000"
    page.click("trace", "t40000 =")
    assert page.run("return document.getElementById('related-trace').textContent") == "100 related"
    assert page.nodes < 1500


@pytest.mark.browser
def test_hostile_text_stays_text(chromium, tmp_path):
    page = chromium.open(save_page(hostile_page(), tmp_path / "hostile.html"))
    assert "owned" not in page.run("return document.title").split("'")[0]
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert page.run("return document.scripts.length") == 2
    for pane in ("source", "trace", "code"):
        shown = page.run(f"return document.getElementById('{pane}').textContent")
        assert "<img src=x onerror=" in shown
        assert "{{ 7 * 7 }}" in shown
        assert "\\u202e\\x00\\ud800\\u2028" in shown
        assert "\u202e" not in shown
    page.search("<img")
    assert page.run("return document.querySelector('mark.here').textContent") == "<img"


@pytest.mark.browser
def test_nothing_is_loaded_and_nothing_could_be(chromium, kernels):
    page = chromium.open(kernels)
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    tried = page.driver.execute_async_script(
        "const done = arguments[0];"
        "addEventListener('securitypolicyviolation', e => done(e.violatedDirective));"
        "fetch('https://example.invalid/').catch(() => {})"
    )
    assert tried == "connect-src"
    page.run(
        "const script = document.createElement('script');"
        "script.textContent = 'document.title = 1'; document.body.append(script)"
    )
    assert page.run("return document.title") != "1"
    page.open(kernels)
    loud = [
        entry
        for entry in page.driver.get_log("browser")
        if "Content Security" not in entry["message"]
    ]
    assert not loud


@pytest.mark.browser
def test_light_dark_and_narrow(chromium, kernels):
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = chromium.open(kernels).run(colour)
    dark = chromium.open(kernels, scheme="dark").run(colour)
    assert light == "rgb(255, 255, 255)"
    assert dark != light
    chromium.run("document.getElementById('theme').click()")  # from auto to light
    assert chromium.run(colour) == light
    chromium.run("document.getElementById('theme').click()")
    assert chromium.run(colour) == dark
    assert chromium.open(kernels, scheme="light").run(colour) == dark  # it is remembered
    chromium.run("document.getElementById('theme').click()")
    narrow = chromium.open(kernels, size=(520, 800))
    assert narrow.run("return document.documentElement.scrollWidth <= innerWidth")


def test_page_needs_no_browser_to_be_whole():
    text = render_page(hostile_page())
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=\"(?!data:)", text.partition('id="data"')[0])
