"""The HTML report in a real browser: it asks for nothing, runs nothing, fits a phone, follows the scheme, prints."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prefillgate.core.decision import Reason
from prefillgate.core.journal import Texts
from prefillgate.core.verdict import Verdict
from prefillgate.report import render
from tests.support import chromium, verdicts
from tests.support.programs import find_chromium, record_real_program

PHONE, DESK = 360, 1280
PAPER = 703  # CSS pixels between the margins of an A4 page


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Chromium]:
    program = find_chromium()
    assert program is not None, "no Chromium or Chrome found; name one in the variable CHROMIUM"
    browser = chromium.Chromium(program, tmp_path_factory.mktemp("chromium") / "profile")
    browser.start()
    yield browser
    browser.stop()


@functools.cache
def version_of(program: str) -> str:
    return chromium.version(program)


@pytest.fixture
def browser(running: chromium.Chromium, request: pytest.FixtureRequest) -> chromium.Chromium:
    record_real_program("chromium", version_of(running.program), request.node.nodeid)
    return running


@pytest.fixture
def trap() -> Iterator[tuple[str, list[str]]]:
    """A server that nobody must ask, and what it was asked."""
    asked: list[str] = []

    class Trap(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Trap)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def saved(folder: Path, verdict: Verdict, texts: dict[int, Texts] | None = None) -> str:
    """The report as a file; its address."""
    file = folder / "report.html"
    told = verdicts.texts_of(verdict) if texts is None else texts
    file.write_text(render(verdict, "html", told), encoding="utf-8", newline="\n")
    return file.as_uri()


@pytest.mark.parametrize("sample", verdicts.SAMPLES.values(), ids=verdicts.SAMPLES.keys())
async def test_a_report_fits_every_screen_and_asks_for_nothing_but_itself(
    sample: verdicts.Sample, browser: chromium.Chromium, tmp_path: Path
) -> None:
    address = saved(tmp_path, sample())
    async with browser.page() as page:
        for width in (PHONE, DESK):
            await page.screen(width)
            await page.load(address)
            assert await page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
            assert page.requests() == [address]
            assert page.complaints() == []


async def test_the_reason_stands_on_one_line_in_every_window(browser: chromium.Chromium, tmp_path: Path) -> None:
    height = "e.offsetHeight / parseFloat(getComputedStyle(e).lineHeight)"
    lines = f"[...document.querySelectorAll('.reason dd')].map(e => {height})"
    verdict = verdicts.confirmed()
    async with browser.page() as page:
        for reason in Reason:
            address = saved(tmp_path, replace(verdict, decision=replace(verdict.decision, reason=reason)))
            for width in (400, 1000, 1400):
                await page.screen(width)
                await page.load(address)
                assert await page.evaluate(lines) == [1], (reason, width)
                assert await page.evaluate("document.documentElement.scrollWidth") == width


async def test_the_style_sheet_is_let_in_by_the_pages_own_policy(browser: chromium.Chromium, tmp_path: Path) -> None:
    async with browser.page() as page:
        await page.screen(DESK)
        await page.load(saved(tmp_path, verdicts.story()))
        assert await page.evaluate("getComputedStyle(document.querySelector('.units')).display") == "flex"
        fills = "[...document.querySelectorAll('#units .block')].map(e => getComputedStyle(e).fill)"
        assert len(set(await page.evaluate(fills))) >= 2


async def test_hostile_text_runs_nothing_and_asks_for_nothing(
    browser: chromium.Chromium, tmp_path: Path, trap: tuple[str, list[str]]
) -> None:
    where, asked = trap
    attack = (
        f"</title></style></pre></script><script>document.title='owned';fetch('{where}/s')</script>"
        f"<img src={where}/i onerror=\"document.title='owned'\"><svg/onload=\"document.title='owned'\">"
        f"<link rel=stylesheet href={where}/c><iframe src={where}/f></iframe><meta http-equiv=refresh "
        f"content='0;url={where}/m'><style>@import '{where}/t'</style>\x00\u202e\u2028\ud800"
    )
    async with browser.page() as page:
        await page.screen(PHONE)
        for text in (attack, *verdicts.HOSTILE):
            for make in (verdicts.story, verdicts.confirmed):
                verdict = verdicts.with_text(make(), text)
                address = saved(tmp_path, verdict, verdicts.texts_with(verdict, text))
                await page.load(address)
                assert page.requests() == [address]
                assert page.complaints() == []
                assert await page.evaluate("document.title") != "owned"
                assert await page.evaluate("location.href") == address
                counted = (
                    "document.querySelectorAll('script, img, iframe, link, b, #owned, [onload], [onerror]').length"
                )
                assert await page.evaluate(counted) == 0
                assert await page.evaluate("document.documentElement.scrollWidth") == PHONE
    assert asked == []


async def test_the_trap_and_the_counting_of_requests_see_a_page_that_does_ask(
    browser: chromium.Chromium, tmp_path: Path, trap: tuple[str, list[str]]
) -> None:
    where, asked = trap
    file = tmp_path / "asking.html"
    file.write_text(f"<!doctype html><script>document.title='owned'</script><img src={where}/i>", encoding="utf-8")
    async with browser.page() as page:
        await page.load(file.as_uri())
        assert await page.evaluate("document.title") == "owned"
        assert page.requests() == [file.as_uri(), f"{where}/i"]
    assert asked == ["/i"]


async def test_hostile_text_leaves_the_elements_of_the_page_as_they_were(
    browser: chromium.Chromium, tmp_path: Path
) -> None:
    shape = "[...document.querySelectorAll('*')].map(e => e.localName + e.getAttributeNames().length).join()"
    async with browser.page() as page:
        shapes = set()
        for text in ("harmless", *filter(None, verdicts.HOSTILE)):
            verdict = verdicts.with_text(verdicts.every_class(), text)
            await page.load(saved(tmp_path, verdict, verdicts.texts_with(verdict, text)))
            shapes.add(await page.evaluate(shape))
    assert len(shapes) == 1


async def test_what_a_model_said_is_shown_to_the_letter(browser: chromium.Chromium, tmp_path: Path) -> None:
    said = "<b>&amp;</b>  two  spaces\n\n{{ 7 * 7 }} ünï 漢字"
    verdict = verdicts.story()
    texts = {view.cell_id: Texts(content=said) for view in verdict.cells}
    async with browser.page() as page:
        await page.load(saved(tmp_path, verdict, texts))
        assert await page.evaluate("document.querySelector('.twin.bad pre').textContent") == said


async def test_dark_and_light_differ_and_both_can_be_read(browser: chromium.Chromium, tmp_path: Path) -> None:
    address = saved(tmp_path, verdicts.every_class())
    pictures, contrasts = [], []
    async with browser.page() as page:
        for scheme in ("light", "dark"):
            await page.screen(DESK, scheme=scheme)
            await page.load(address)
            pictures.append(await page.screenshot())
            contrasts += await page.evaluate(_CONTRASTS)
    assert pictures[0] != pictures[1]
    assert [each for each in contrasts if each[1] < 4.5] == []
    assert len(contrasts) > 50


async def test_a_long_run_stays_small_and_readable(browser: chromium.Chromium, tmp_path: Path) -> None:
    address = saved(tmp_path, verdicts.large())
    async with browser.page() as page:
        await page.screen(PHONE)
        await page.load(address)
        assert await page.evaluate("document.querySelectorAll('#cells tbody tr').length") == 300
        table = "(e => [e.scrollWidth > e.clientWidth, getComputedStyle(e).overflowX])"
        assert await page.evaluate(f"{table}(document.querySelector('#cells .scroll'))") == [True, "auto"]
        sizes = (
            "[...document.querySelectorAll('main p, main li, td')].map(e => parseFloat(getComputedStyle(e).fontSize))"
        )
        assert min(await page.evaluate(sizes)) >= 11


async def test_a_block_leads_to_the_row_of_its_cell(browser: chromium.Chromium, tmp_path: Path) -> None:
    async with browser.page() as page:
        await page.screen(DESK)
        await page.load(saved(tmp_path, verdicts.story()))
        broken = (
            "[...document.querySelectorAll('a')].filter(a => !document.querySelector(a.getAttribute('href'))).length"
        )
        assert await page.evaluate("document.querySelectorAll('a.unit-link').length") == 12
        assert await page.evaluate(broken) == 0


async def test_a_report_prints_in_black_on_white_with_nothing_cut_off(
    browser: chromium.Chromium, tmp_path: Path
) -> None:
    async with browser.page() as page:
        await page.screen(PAPER, 1123, scheme="dark", media="print")
        await page.load(saved(tmp_path, verdicts.story()))
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert await page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert await page.evaluate("document.documentElement.scrollWidth") == PAPER
        overflows = "[...document.querySelectorAll('.scroll, .text')].map(e => getComputedStyle(e).overflow)"
        assert set(await page.evaluate(overflows)) == {"visible"}
        pdf = await page.pdf()
    assert pdf.startswith(b"%PDF-")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") >= 2
    assert len(pdf) > 10_000


# Contrast of every element that holds text against the nearest opaque ground (WCAG 2.1, 1.4.3).
_CONTRASTS = """
(() => {
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const parts = s => s.match(/[\\d.]+/g).map(Number);
  const ground = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] === 1) return c.slice(0, 3); } return [255, 255, 255]; };
  const told = [];
  for (const e of document.querySelectorAll('body *:not(svg *)')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const a = light(parts(getComputedStyle(e).color).slice(0, 3)), b = light(ground(e));
    told.push([e.localName + '.' + e.className + ': ' + e.textContent.trim().slice(0, 30),
      (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
  }
  return told;
})()
"""
