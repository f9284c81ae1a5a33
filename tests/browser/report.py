#!/usr/bin/env python3
"""Opens pages of `runner report` in headless Chromium: tests/browser/report.py RUNNER [FOLDER FOR PICTURES]

Each page is opened wide and narrow, light and dark. Nothing may be written to the console, no request may go
to the network, nothing may be wider than the window, and every chart must be drawn. Then the keyboard,
buttons, zoom and sorting are tried. A page of `runner serve` must update itself as a run progresses, and keep
what the reader chose. Needs Chromium and Python's standard library.
"""

import base64
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = {1280: 900, 400: 800}

# Opens everything that is folded; those charts are drawn in the next frames.
SHOW_ALL = """(async () => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  for (let frame = 0; frame < 4; frame++) await new Promise((done) => requestAnimationFrame(done));
})()"""

# Keeps the words that charts write on their canvas.
KEEP_LABELS = """
window.labels = [];
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  window.labels.push(String(text));
  return fillText.call(this, text, ...place);
};"""

# What is wrong with a page, as sentences.
PROBLEMS = """(() => {
  const problems = [];
  const say = (element, words) => problems.push(`${words}: ${element.outerHTML.slice(0, 120)}`);
  const drawn = (canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((v) => v !== 0);
  if (document.documentElement.scrollWidth > innerWidth) {
    const isWide = (one) => !one.closest(".wide") && one.getBoundingClientRect().right > innerWidth;
    say([...document.body.querySelectorAll("*")].find(isWide) ?? document.body, "wider than the window");
  }
  for (const figure of document.querySelectorAll(".chart")) {
    const canvas = figure.querySelector("canvas");
    if (!canvas || !drawn(canvas)) say(figure, "not drawn");
    if (!figure.querySelector(".plot[role=img][aria-label][tabindex]")) say(figure, "no name");
    if (!figure.querySelector(".legend button[aria-pressed]")) say(figure, "no legend");
  }
  for (const svg of document.querySelectorAll("main svg")) {
    if (svg.getAttribute("aria-hidden")) continue;
    if (svg.getAttribute("role") !== "img" || !svg.getAttribute("aria-label")) say(svg, "no name");
    const { width, height } = svg.getBoundingClientRect();
    if (width < 20 || height < 10 || svg.childElementCount === 0) say(svg, "empty");
    for (const text of svg.querySelectorAll("text")) {
      if (text.textContent.includes("NaN")) say(text, "no number");
    }
  }
  // Labels that lie on each other, or outside the window.
  for (const svg of document.querySelectorAll("main svg")) {
    const labels = [...svg.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
    labels.forEach(([text, a], at) => {
      if (a.width > 0 && !text.closest(".wide") && (a.left < 0 || a.right > innerWidth)) say(text, "outside the window");
      for (const [, b] of labels.slice(at + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 5) say(text, "lies on another label");
      }
    });
  }
  const light = (colour) => {
    const parts = colour.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  for (const cell of document.querySelectorAll("table.heat td[class]")) {
    const style = getComputedStyle(cell);
    const [low, high] = [light(style.color), light(style.backgroundColor)].sort((a, b) => a - b);
    if ((high + 0.05) / (low + 0.05) < 4.5) say(cell, "cannot be read");
    if (cell.className === "h0" && Math.abs(light(style.backgroundColor) - ground) > 0.1) say(cell, "glares");
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption || !table.querySelector("th[scope]")) say(table, "no caption or heads");
  }
  const levels = [...document.querySelectorAll("h1, h2, h3")].map((head) => Number(head.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) problems.push("not one h1");
  for (const link of document.querySelectorAll("nav a")) {
    if (!document.querySelector(link.getAttribute("href"))) say(link, "leads nowhere");
  }
  return problems;
})()"""


# Parts that a page must have.
PARTS = {
    "digits": ["curves", "confusion", "time", "transfers", "system", "spec", "environment"],
    "regression": ["curves", "predicted", "time"],
    "diabetes": ["curves", "ranking", "axes", "runs"],
    "halving": ["curves", "ranking", "axes", "runs"],
    "single": ["curves", "ranking", "axes"],
    "num_gpus_sweep": ["curves", "devices", "time", "transfers"],
    "matmul": ["lab"],
    "diverged": ["curves"],
    "rates": ["curves", "roofline"],
    "big": ["curves", "ranking", "runs"],
}

# A page of 100 runs with 10,000 rows each is smaller.
MOST_BYTES = 5 << 20


class Browser:
    """Chromium by its debugging protocol, over pipes."""

    def __init__(self, profile):
        self.down_read, self.down = os.pipe()
        self.up, up_write = os.pipe()
        # Chromium's debugging pipes are file descriptors 3 and 4.
        command = "exec chromium --headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run "
        command += f"--user-data-dir={profile} --remote-debugging-pipe 3<&{self.down_read} 4>&{up_write}"
        self.process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=[self.down_read, up_write], stderr=subprocess.DEVNULL
        )
        os.close(up_write)
        self.numbers, self.buffer, self.events, self.session = itertools.count(1), b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_LABELS)

    def message(self, timeout):
        while b"\0" not in self.buffer:
            if not select.select([self.up], [], [], timeout)[0]:
                return None
            data = os.read(self.up, 1 << 20)
            if not data:
                raise RuntimeError("Chromium ended")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.down, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message(60)
            if answer is None:
                raise RuntimeError(f"no answer to {method}")
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", script))
        return answer["result"].get("value")

    def open(self, url, width, scheme):
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=WIDTHS[width], deviceScaleFactor=1, mobile=False
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        end = time.monotonic() + 30
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            message = self.message(max(0.1, end - time.monotonic()))
            if message is None:
                raise RuntimeError(f"{url} does not load")
            self.events.append(message)

    def complaints(self):
        """The page's console messages and network requests."""
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.consoleAPICalled":
                found.append(f"console: {[argument.get('value') for argument in parameters['args']]}")
            elif method == "Runtime.exceptionThrown":
                found.append(f"exception: {parameters['exceptionDetails']['text']}")
            elif method == "Log.entryAdded":
                found.append(f"log: {parameters['entry']['text']}")
            elif method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith("file:"):
                found.append(f"request: {parameters['request']['url'][:100]}")
        return found

    def picture(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def drag(self, begin, end, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=begin, y=y)
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=begin, y=y, button="left", clickCount=1)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=(begin + end) / 2, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=end, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=end, y=y, button="left", clickCount=1)

    def close(self):
        self.process.terminate()
        self.process.wait(30)


def make_pages(runner, folder):
    """Makes the pages: of a run, of sweeps, of several devices, of the lab, and of a run whose names contain
    scripts."""

    def run(*words):
        done = subprocess.run([runner, *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    examples = ROOT / "experiments"
    run(examples / "digits.toml", "trainer.max_epochs=5", "logging.system_every_s=0.02", "-q")
    sweep = ["optimizer.adamw.lr=0.003,0.03,0.3", "model.layers.0.linear.out_features=8,32", "sweep.repeats=3"]
    run(examples / "diabetes.toml", *sweep, "trainer.max_epochs=8", "-q")
    run(examples / "halving.toml", "-q")
    # One validation per run, and grey lines.
    run(examples / "diabetes.toml", "name=single", "optimizer.adamw.lr=0.001,0.01,0.1", "data.batch_size=8,16,32", "trainer.max_epochs=1", "-q")
    run(examples / "num_gpus_sweep.toml", "devices.num_gpus=0,1,2", "--virtual-gpus", "2", "-q")
    run(examples / "matmul.toml", "matmul.count=3", "-q")
    run(examples / "diabetes.toml", "name=regression", "-q")
    evil = "</script><script>console.log('bad')</script><img src=x onerror=console.log(1)>"
    for name, loss in [("<b>a", 3), ("b", 2)]:
        place = folder / "evil" / name
        place.mkdir(parents=True)
        rows = "".join(f"{step},1,train,8,{loss / step},0.1\n" for step in range(1, 40))
        (place / "metrics.csv").write_text(f"step,epoch,split,rows,loss,elapsed_s\n{rows}")
        (place / "summary.csv").write_text(f"run,status,epoch_train_loss\n{loss},finished,{loss / 39}\n")
        (place / "spec.toml").write_text(f"name = {json.dumps(evil)}\nx = {json.dumps(evil + str(loss))}\n")
    # Losses over 36 decades.
    write_run(folder / "diverged" / "a", {step: 10 ** (3.6 * step) for step in range(1, 11)}, "diverged")
    for number in range(100):
        write_run(folder / "big" / f"r{number:02}", {step: (2 + step % 7) / (step + 100 * number) for step in range(1, 10_001)}, "finished", number)
    # A machine whose rates were measured.
    shutil.copytree(next((folder / "runs" / "regression").iterdir()), folder / "rates" / "a")
    environment = folder / "rates" / "a" / "environment.toml"
    rates = "flops_per_s = 1e11\ncache_bytes_per_s = 1e11\nmemory_bytes_per_s = 2e10\n"
    environment.write_text(environment.read_text().replace("[step]\n", f"[step]\n{rates}"))
    pages = {}
    for name, path in [(name, f"runs/{name}") for name in ("digits", "diabetes", "halving", "single", "num_gpus_sweep", "matmul", "regression")] + [
        *((name, name) for name in ("evil", "diverged", "big", "rates")),
        ("all", "runs/*"),
    ]:
        run("report", path, "-o", f"{name}.html")
        pages[name] = folder / f"{name}.html"
    return pages


def write_run(place, losses, status, lr=1):
    """A run's folder of its losses by step."""
    place.mkdir(parents=True)
    rows = "".join(f"{step},1,train,8,{loss:.6g},{step / 1000}\n" for step, loss in losses.items())
    (place / "metrics.csv").write_text(f"step,epoch,split,rows,loss,elapsed_s\n{rows}")
    (place / "summary.csv").write_text(f"run,name,status,epoch_train_loss\n{place.name},x,{status},{min(losses.values())}\n")
    (place / "spec.toml").write_text(f'name = "x"\n[optimizer.sgd]\nlr = {lr}.5\n')


def special(browser, name, path):
    """What only this page must show: what it does not, as sentences."""
    if name == "diverged":
        labels = {label for label in browser.evaluate("window.labels") if label.startswith("1e")}
        wanted = {f"1e{power}" for power in range(5, 40, 5)}
        return [] if labels == wanted else [f"labels of 36 decades are {sorted(labels)}"]
    if name == "big":
        bytes = path.stat().st_size
        is_thinned = browser.evaluate("document.body.textContent.includes('Thinned: a point stands for about 10 steps.')")
        return [f"{bytes} bytes"] * (bytes > MOST_BYTES) + ["does not say that it is thinned"] * (not is_thinned)
    return []


def use(browser):
    """Tries keyboard, buttons, zoom and sorting; returns what does not work, as sentences."""
    problems = []

    def expect(words, script):
        if browser.evaluate(script) is not True:
            problems.append(words)

    reset = "document.querySelector('.tools button:last-child')"
    expect("zoom is reset at first", f"{reset}.disabled")
    browser.evaluate("document.querySelector('.chart .plot').scrollIntoView({ block: 'center' })")
    box = browser.evaluate("(({ left, top, width, height }) => [left, top, width, height])"
                           "(document.querySelector('.u-over').getBoundingClientRect().toJSON())")
    for share in (0.36, 0.37):
        # With the first move the chart takes back the size that it had before a picture.
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] * share, y=box[1] + box[3] / 2)
    expect("the cursor stands at the values", """(() => {
      const { x } = JSON.parse(document.getElementById("charts").textContent)[0];
      const step = Number(document.querySelector(".readout").textContent.replace(/\\D/g, ""));
      const left = new DOMMatrix(getComputedStyle(document.querySelector(".u-cursor-x")).transform).e;
      const share = (step - x[0]) / (x.at(-1) - x[0]);
      return Math.abs(left - share * document.querySelector(".u-over").clientWidth) < 2;
    })()""")
    browser.drag(box[0] + box[2] * 0.3, box[0] + box[2] * 0.6, box[1] + box[3] / 2)
    expect("dragging zooms", f"!{reset}.disabled")
    expect("the cursor reads values", "document.querySelector('.legend .value').textContent !== ''")
    expect("a mouse is not read aloud", "document.querySelector('.spoken').textContent === ''")
    browser.evaluate("document.querySelector('.chart .plot').focus()")
    browser.press("Escape")
    expect("Escape resets the zoom", f"{reset}.disabled")
    browser.press("End")
    last = browser.evaluate("document.querySelector('.readout').textContent")
    browser.press("ArrowLeft")
    expect("arrows move the cursor", f"document.querySelector('.readout').textContent !== {json.dumps(last)}")
    expect("keys are read aloud", "/^steps \\d+: .+ [\\d.]+/.test(document.querySelector('.spoken').textContent)")
    browser.press("+")
    expect("+ zooms", f"!{reset}.disabled")
    button = "document.querySelector('.legend button')"
    browser.evaluate(f"{button}.click()")
    expect("a curve is hidden", f"{button}.getAttribute('aria-pressed') === 'false'")
    log = "document.querySelector('.tools button')"
    before = browser.evaluate(f"{log}.getAttribute('aria-pressed')")
    browser.evaluate(f"{log}.click()")
    expect("the axis changes", f"{log}.getAttribute('aria-pressed') !== {json.dumps(before)}")
    head = "document.querySelector('#ranking th button')"
    browser.evaluate(f"{head}.click()")
    cells = "[...document.querySelectorAll('#ranking tbody tr')].map((row) => Number(row.cells[0].textContent))"
    expect("a table is sorted", f"{cells}.every((value, i, all) => i === 0 || all[i - 1] <= value)")
    browser.evaluate(f"{head}.click()")
    expect("and back", f"{cells}.every((value, i, all) => i === 0 || all[i - 1] >= value)")
    # Sorted by the exact values of cells such as 479 µs and 1.2 ms.
    column = "[...document.querySelectorAll('#runs thead th')].findIndex((head) => head.textContent === 'train time')"
    places = f"[...document.querySelectorAll('#runs tbody tr')].map((row) => Number(row.cells[{column}].dataset.place))"
    browser.evaluate(f"document.querySelectorAll('#runs thead th')[{column}].querySelector('button').click()")
    expect("exact values sort a table", f"{places}.every((value, i, all) => i === 0 || all[i - 1] <= value)")
    return problems


def serve(browser, runner, folder):
    """Keeps a page open while its run progresses; returns what does not work, as sentences."""
    problems = []

    def wait(words, script):
        end = time.monotonic() + 15
        while browser.evaluate(script) is not True:
            if time.monotonic() > end:
                problems.append(words)
                return
            time.sleep(0.1)

    place = folder / "live" / "a" / "1"
    place.mkdir(parents=True)
    (place / "spec.toml").write_text('name = "a"\n')
    metrics = place / "metrics.csv"
    rows = [f"{step},1,train,8,{3 / step},0.1\n{step},1,validation,8,{4 / step},0.1\n" for step in range(1, 60)]
    metrics.write_text("step,epoch,split,rows,loss,elapsed_s\n" + "".join(rows[:20]))
    server = subprocess.Popen(
        [runner, "serve", "live", "--port", "0"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        browser.open(server.stdout.readline().strip(), 1280, "light")
        last = "JSON.parse(document.getElementById('charts').textContent)[0].x.at(-1)"
        hidden = "document.querySelector('.legend button').getAttribute('aria-pressed') === 'false'"
        log = "document.querySelector('.tools button')"
        wait("the page shows the run", f"{last} === 20")
        browser.evaluate("document.querySelector('.legend button').click()")
        browser.evaluate(f"{log}.click()")
        pressed = browser.evaluate(f"{log}.getAttribute('aria-pressed')")
        browser.evaluate("document.querySelector('main').id = 'first'")
        asked = "performance.getEntriesByType('resource').length"
        wait("the page asks twice", f"{asked} > 1")
        wait("what has not changed is not drawn anew", "document.querySelector('main').id === 'first'")
        # A drag that ends outside the page.
        browser.evaluate("dispatchEvent(new Event('pointerdown')), dispatchEvent(new Event('blur'))")
        with metrics.open("a") as file:
            file.write("".join(rows[20:]))
        wait("the page is renewed", f"{last} === 59")
        wait("a hidden curve stays hidden", hidden)
        wait("the axis stays", f"{log}.getAttribute('aria-pressed') === {json.dumps(pressed)}")
        wait("one plot for each chart", "document.querySelectorAll('.u-wrap').length === "
                                        "document.querySelectorAll('.chart').length")
        problems += browser.evaluate(PROBLEMS)
        # The page polls by itself.
        origin = browser.evaluate("location.origin")
        problems += [words for words in browser.complaints() if words != f"request: {origin}/"]
        browser.events.clear()
    finally:
        server.terminate()
        server.wait(30)
    wait("the page says that its server is gone", "document.querySelector('.live').textContent.includes('not answer')")
    return problems


def main():
    # Ended by another process, it ends its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    runner = Path(sys.argv[1]).resolve()
    pictures = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    passed, failed = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        pages = make_pages(runner, Path(folder))
        browser = Browser(Path(folder) / "profile")
        try:
            for (name, path), width, scheme in itertools.product(pages.items(), WIDTHS, ("light", "dark")):
                browser.open(path.as_uri(), width, scheme)
                browser.evaluate(SHOW_ALL)
                problems = browser.evaluate(PROBLEMS)
                ids = browser.evaluate("[...document.querySelectorAll('section')].map((part) => part.id)")
                problems += special(browser, name, path)
                problems += [f"no part {part}" for part in PARTS.get(name, []) if part not in ids]
                if pictures:
                    pictures.mkdir(parents=True, exist_ok=True)
                    browser.picture(pictures / f"{name}-{width}-{scheme}.png")
                if name == "diabetes":
                    problems += use(browser)
                problems += browser.complaints()
                passed, failed = passed + (not problems), failed + bool(problems)
                for problem in problems:
                    print(f"{name}, {width} pixels, {scheme}: {problem}")
            problems = serve(browser, runner, Path(folder))
            passed, failed = passed + (not problems), failed + bool(problems)
            for problem in problems:
                print(f"served: {problem}")
        finally:
            browser.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
