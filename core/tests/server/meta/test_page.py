"""The page at /: what it is allowed to do, and a conversation on it in a real browser without a screen."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright
from server_fake import HELLO, LD, WOR, FakeEngine
from starlette.testclient import TestClient

from octavo.server import ServerSettings, create_app
from octavo.server.meta.page import policy

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CURE = "install Chromium (Debian and Ubuntu: apt-get install chromium), or name one with OCTAVO_CHROMIUM"


def find_browser() -> str:
    """The browser to use; without one the test is skipped, but fails where CI is set: there it must not be missing."""
    found = os.environ.get("OCTAVO_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        if os.environ.get("CI", "").lower() not in ("", "0", "false"):
            pytest.fail(f"the page cannot be tested without a browser: {CURE}")
        pytest.skip(f"no browser: {CURE}")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_browser()
    with sync_playwright() as playwright:
        # Its own sandbox needs rights that containers and root do not have; it sees nothing but our page.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1100, "height": 800}, color_scheme="light")
    context.set_default_timeout(20_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, served) -> Iterator[Page]:
    """The page, open. It must not have made the browser complain when the test is over."""
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(f"http://127.0.0.1:{served.port}/")
    expect(page.locator("#model option")).to_have_count(2)
    yield page
    assert [c for c in complaints if "Failed to load resource" not in c] == []  # that is how it tells a 401 or 500


def say(page: Page, text: str) -> None:
    page.locator("#line").fill(text)
    page.keyboard.press("Enter")


def answers(page: Page, answer: str) -> None:
    """Wait for the last answer to be complete, and this."""
    last = page.locator("article.assistant").last
    expect(last).not_to_have_class(re.compile("running"))
    expect(last.locator(".text")).to_have_text(answer)


# ---- What it may do


def test_it_runs_its_own_script_and_calls_its_own_server_alone(served) -> None:
    reply = served.request("GET", "/")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    text = reply.body.decode()
    rules = dict(rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; "))
    assert reply.headers["content-security-policy"] == policy(text)
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", rules["script-src"])
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", rules["style-src"])
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(?!data:)", text), "it loads nothing"
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)


def test_an_unchanged_page_is_not_sent_again(served) -> None:
    first = served.request("GET", "/")
    again = served.request("GET", "/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_without_a_ui_there_is_no_page() -> None:
    client = TestClient(create_app(FakeEngine(), ServerSettings(ui=False)))
    assert client.get("/").status_code == 404
    assert client.get("/v1/models").status_code == 200


# ---- A conversation


def test_an_answer_streams_in_with_its_pace(page: Page, engine: FakeEngine, tmp_path: Path) -> None:
    engine.script = (HELLO,) + (WOR,) * 60 + (LD,)
    engine.pause = 0.02
    engine.cached = 4
    say(page, "Hi")
    expect(page.locator("article.assistant .text")).to_contain_text("Hello wor")
    expect(page.locator("#stop")).to_be_visible()
    expect(page.locator(".pace")).to_have_text(re.compile(r"^\d+\.\d tokens/s · first token \d\.\d\d s · \d+ tokens$"))
    answers(page, "Hello" + " wor" * 60 + "ld")
    expect(page.locator(".pace")).to_have_text(re.compile(r"^\d+.* · 62 tokens · prompt 19 \(4 cached\)$"))
    expect(page.locator("#send")).to_be_visible()
    assert engine.seen[0].text == "user:Hi|assistant:"
    engine.script = (HELLO,)
    say(page, "again")
    answers(page, "Hello")
    assert engine.seen[1].text.startswith("user:Hi|assistant:Hello wor")
    assert engine.seen[1].text.endswith("world|user:again|assistant:")
    picture = tmp_path / "page.png"
    page.screenshot(path=picture)
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (1100, 800)
    if folder := os.environ.get("OCTAVO_SCREENSHOTS"):
        shutil.copy(picture, Path(folder) / "page.png")


@pytest.mark.parametrize("how", ["button", "escape"])
def test_stop_ends_the_answer_and_the_generation(page: Page, engine: FakeEngine, how: str) -> None:
    engine.script = (HELLO,) + (WOR,) * 10_000
    engine.pause = 0.01
    say(page, "Hi")
    expect(page.locator("article.assistant .text")).to_contain_text("Hello wor wor")
    page.locator("#stop").click() if how == "button" else page.keyboard.press("Escape")
    expect(page.locator(".pace")).to_contain_text("stopped")
    engine.wait_until(lambda: engine.running == 0)
    assert engine.ended
    engine.script = (HELLO,)
    say(page, "again")
    answers(page, "Hello")
    assert "|assistant:Hello wor wor" in engine.seen[1].text, "what was said stays said"


def test_the_settings_reach_the_server(page: Page, engine: FakeEngine) -> None:
    page.locator("#model").select_option("org/fake-model")
    page.locator("#tune").click()
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Max tokens").fill("2")
    with page.expect_request("**/v1/chat/completions") as sent:
        say(page, "Hi")
    answers(page, "Hello,")
    expect(page.locator(".pace")).to_contain_text("cut off at the limit of tokens")
    assert sent.value.post_data_json["model"] == "org/fake-model"
    assert engine.seen[0].text == "system:Be brief.|user:Hi|assistant:"
    assert (engine.seen[0].params.temperature, engine.seen[0].params.max_tokens) == (0.5, 2)
    page.get_by_label("Temperature").fill("7")
    say(page, "Hi")
    assert page.evaluate("document.activeElement.id") == "temperature", "a value that cannot be is pointed at"
    assert len(engine.seen) == 1


def test_a_new_chat_forgets_and_stops(page: Page, engine: FakeEngine) -> None:
    engine.script = (HELLO,) + (WOR,) * 10_000
    engine.pause = 0.01
    say(page, "Hi")
    expect(page.locator("article.assistant .text")).to_contain_text("wor")
    page.locator("#fresh").click()
    expect(page.locator("article")).to_have_count(0)
    engine.wait_until(lambda: engine.running == 0)
    engine.script = (HELLO,)
    say(page, "two")
    answers(page, "Hello")
    assert engine.seen[1].text == "user:two|assistant:"


def test_a_failure_is_told_and_the_question_can_be_sent_again(page: Page, engine: FakeEngine) -> None:
    engine.fail_at = 0
    say(page, "Hi")
    expect(page.get_by_role("alert")).to_contain_text("The server failed on this request")
    expect(page.locator("#line")).to_have_value("Hi")
    engine.fail_at = None
    page.keyboard.press("Enter")
    answers(page, "Hello, world!")
    assert engine.seen[-1].text == "user:Hi|assistant:"


def test_a_failure_in_the_middle_keeps_what_was_said(page: Page, engine: FakeEngine) -> None:
    engine.fail_at = 2
    say(page, "Hi")
    expect(page.get_by_role("alert")).to_contain_text("The server failed on this request")
    answers(page, "Hello,")


# ---- What a model writes

MARKDOWN = """\
# Title

A **bold** and *slanted* and `code <b>` and ***both***, snake_case_name, 2 * 3 * 4.
<img src=x onerror="window.broken=1"> [good](https://example.org/a_(b)) [bad](javascript:alert(1))

1. one
   - inner
2. two

> quote

| a | b |
|---|--:|
| 1 | **2** |

```html
<script>window.broken = 1</script>
```
"""


def test_markdown_becomes_elements_and_markup_stays_text(page: Page, engine: FakeEngine) -> None:
    engine.script = tuple(MARKDOWN.encode())
    say(page, "Hi")
    text = page.locator("article.assistant:not(.running) .text")
    expect(text.locator("h2")).to_have_text("Title")
    expect(text.locator("p strong").first).to_have_text("bold")
    expect(text.locator("p > em")).to_have_text("slanted")
    expect(text.locator("strong > em, em > strong")).to_have_text("both")
    expect(text.locator("p > code")).to_have_text("code <b>")
    expect(text.locator("ol > li")).to_have_count(2)
    expect(text.locator("ol > li > ul > li")).to_have_text("inner")
    expect(text.locator("blockquote")).to_have_text("quote")
    expect(text.locator("td strong")).to_have_text("2")
    expect(text.locator("pre")).to_have_text("<script>window.broken = 1</script>")
    expect(text.locator("p").first).to_contain_text('<img src=x onerror="window.broken=1">')
    expect(text.locator("p").first).to_contain_text("snake_case_name, 2 * 3 * 4.")
    expect(text.locator("p").first).to_contain_text("[bad](javascript:alert(1))")
    link = text.locator("a")
    expect(link).to_have_attribute("href", "https://example.org/a_(b)")
    expect(link).to_have_attribute("rel", re.compile("noopener"))
    expect(text.locator("img, script, b")).to_have_count(0)
    assert page.evaluate("window.broken") is None


@pytest.mark.parametrize(
    "text",
    [
        "**a " * 5000,
        "*a **b " * 2500,
        "[" * 19999,
        "[a](https://a" * 1500,
        "https://" * 2400,
        "- " * 5000,
        "- a\n" * 5000,
        "".join(" " * (2 * i) + "- a\n" for i in range(200)),
        "`" * 9999,
        "`a``" * 4000,
        "# " + " " * 20000 + "#x",
        "> " * 9000,
        "|" * 9000 + "\n" + "|-" * 9000 + " " * 9000 + "x",
        "```" + "a" * 19000 + "`",
    ],
    ids=lambda text: text[:8],
)
def test_text_that_means_nothing_does_not_hold_up_the_page(page: Page, text: str) -> None:
    """A pattern that backtracks would take minutes over one of these."""
    script = "(text) => { const div = make('div'); new Sheet(div).show(text); return div.textContent; }"
    shown = page.evaluate(script, text)
    assert len(shown) <= len(text)


def test_any_text_survives_being_shown_bit_by_bit(page: Page) -> None:
    script = """(text) => {
      const grown = document.createElement("div"), sheet = new Sheet(grown);
      for (let end = 1; end <= text.length; end += 1) sheet.show(text.slice(0, end));
      const whole = document.createElement("div");
      new Sheet(whole).show(text);
      return grown.isEqualNode(whole);
    }"""
    assert page.evaluate(script, MARKDOWN)


def test_the_browser_refuses_what_the_page_would_never_do(context: BrowserContext, served) -> None:
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{served.port}/")
    attempt = """async () => {
      const refused = [];
      window.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
      try { document.body.innerHTML = "<b>x</b>"; } catch (error) { refused.push(error.name); }
      try { await fetch("http://127.0.0.1:1/"); } catch (error) { refused.push(error.name); }
      const script = document.createElement("script");
      script.append("window.broken = 1");
      document.body.append(script);
      await new Promise((resolve) => setTimeout(resolve, 100));
      return [window.broken, ...refused.sort()];
    }"""
    found = page.evaluate(attempt)
    assert found[0] is None
    assert {"TypeError", "connect-src", "require-trusted-types-for"} <= set(found[1:])


def test_reasoning_and_tool_calls_are_folded(page: Page) -> None:
    deltas = [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Let me "},
        {"reasoning_content": "see.", "reasoning": "see."},
        {"content": "It rains."},
        {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "weather", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Wien"}'}}]},
    ]
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="text/event-stream", body=body)

    page.route("**/v1/chat/completions", answer)
    say(page, "Weather?")
    answers(page, "It rains.")
    folds = page.locator("article.assistant details")
    expect(folds).to_have_count(2)
    expect(folds.nth(0).locator(".inside")).to_be_hidden()
    expect(folds.nth(0).locator(".inside")).to_have_text("Let me see.")
    folds.nth(1).locator("summary").click()
    expect(folds.nth(1).locator("summary")).to_have_text("Tool call: weather")
    expect(folds.nth(1).locator(".inside")).to_have_text('{"city": "Wien"}')


# ---- Keys, and small or dark screens


def test_a_server_that_wants_a_key_is_given_it_for_this_tab_only(context: BrowserContext, served) -> None:
    page = context.new_page()
    refusal = {"error": {"message": "A key is needed.", "type": "invalid_request_error", "param": None, "code": None}}

    def guard(route: Route) -> None:
        if route.request.headers.get("authorization") == "Bearer sesame":
            route.continue_()
        else:
            route.fulfill(status=401, json=refusal)

    page.route("**/v1/**", guard)
    page.goto(f"http://127.0.0.1:{served.port}/")
    expect(page.locator("#where")).to_have_text("A key is needed.")
    expect(page.get_by_label("API key")).to_be_focused()
    page.get_by_label("API key").fill("sesame")
    page.keyboard.press("Tab")
    expect(page.locator("#model option")).to_have_count(2)
    say(page, "Hi")
    answers(page, "Hello, world!")
    assert page.evaluate("Object.values(sessionStorage)") == ["sesame"]
    assert page.evaluate("localStorage.length + document.cookie.length") == 0


def test_where_no_key_is_wanted_none_is_asked_for(page: Page) -> None:
    page.locator("#tune").click()
    expect(page.get_by_label("System prompt")).to_be_visible()
    expect(page.get_by_label("API key")).to_be_hidden()


def test_it_fits_a_phone_and_knows_the_dark(browser: Browser, served, engine: FakeEngine, tmp_path: Path) -> None:
    engine.script = tuple(("| a | b |\n|---|---|\n| " + "x" * 300 + " | 2 |\n\n```\n" + "y" * 300 + "\n```\n").encode())
    colours = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 360, "height": 640}, color_scheme=scheme, has_touch=True)
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/")
        expect(page.locator("#model option")).to_have_count(2)
        say(page, "a" * 200)
        expect(page.locator("article.assistant:not(.running) pre")).to_be_visible()
        page.locator("#tune").tap()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("document.getElementById('view').scrollWidth") <= 360
        box = page.locator("#send").bounding_box()
        assert box is not None and box["x"] + box["width"] <= 360 and box["y"] + box["height"] <= 640
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.screenshot(path=tmp_path / f"phone-{scheme}.png")
        context.close()
    assert colours["light"] != colours["dark"]


def test_it_works_by_keyboard_alone(page: Page, engine: FakeEngine) -> None:
    assert page.evaluate("document.activeElement.id") == "line", "one can type at once"
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    answers(page, "Hello, world!")
    assert engine.seen[0].text == "user:one\ntwo|assistant:"
    page.keyboard.type("three")
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert {"send", "model", "tune", "fresh"} <= set(reached)
    page.locator("#tune").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("System prompt")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_label("System prompt")).to_be_hidden()
    expect(page.locator("#tune")).to_be_focused()
