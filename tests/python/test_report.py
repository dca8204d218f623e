"""The HTML report in a real browser.

usage: test_report.py PROGRAM SOURCE_FOLDER [SCREENSHOT_FOLDER]. Drives headless Chromium over its debugging pipe
(nothing but Python's own library) and checks that the report renders, sorts and filters, fits a phone, logs no
error and asks for nothing; skips with a reason without Chromium.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SWEEP = """schema: swaplab/sweep@1
name: report
parameters:
  trace: {{values: [{source}/configs/traces/gpt_small.jsonl.gz, {source}/configs/traces/resnet50_b256.jsonl.gz]}}
  machine: a100-40g-pcie4
  budget: {{values: [0.3x, 0.5x, 0.7x, 0.9x]}}
  policy: {{values: [none, lru, size, next-use]}}
baseline: lru
"""


# Names that are alike at both ends, more policies than there are colours.
ALIKE = """schema: swaplab/sweep@1
name: alike
parameters:
  trace:
    values:
      - {{synth: gpt-small, set: {{model.layers: 1, training.batch: 2, training.precision: bf16-autocast, training.optimizer: sgd}}}}
      - {{synth: gpt-small, set: {{model.layers: 1, training.batch: 3, training.precision: bf16-autocast, training.optimizer: sgd}}}}
      - {{synth: gpt-small, set: {{model.layers: 1, training.batch: 4, training.precision: bf16-autocast, training.optimizer: sgd}}}}
  machine: a100-40g-pcie4
  budget: 0.9x
  iterations: 3
  policy: {{values: [{policies}]}}
baseline: size
""".format(policies=", ".join(["size", *(f"{{name: lru, min_bytes: {k}KiB}}" for k in range(1, 13))]))


class Browser:
    """One page of a headless Chromium."""

    def __init__(self, chromium, profile):
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def connect():
            # The browser reads from descriptor 3 and writes to 4; move ours out of their way first.
            source, target = os.dup(to_browser), os.dup(from_browser)
            high = [os.dup2(source, 50), os.dup2(target, 51)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking", "--disable-sync",
             "--disable-component-update", "--hide-scrollbars", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.events = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    session = None

    def receive(self):
        while b"\0" not in self.buffer:
            data = os.read(self.read_end, 1 << 20)
            assert data, "the browser ended"
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def script(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", url=url)
        for _ in range(1200):
            if self.script("(document.documentElement && document.documentElement.dataset.ready) || ''") == "yes":
                return
            self.script("new Promise(done => setTimeout(done, 50))")
        raise AssertionError("the report does not become ready: " + str([e for e in self.events if "xception" in e.get("method", "") or "Log" in e.get("method", "")])[:1500])

    def screenshot(self, path, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        if path:
            pathlib.Path(path).write_bytes(base64.b64decode(image["data"]))
        return len(image["data"])

    def close(self):
        self.process.kill()
        self.process.wait()


def check(browser, report, shots):
    browser.open(report.as_uri())
    number = lambda selector: browser.script(f"document.querySelectorAll({json.dumps(selector)}).length")
    assert number("#verdict .card") == 3
    browser.script("(s => { s.value = 'next-use'; s.dispatchEvent(new Event('change')); })(document.querySelector('#dots-controls select'))")
    assert number("#dots svg .mark") > 4
    assert number("#curves svg path") >= 4, "a curve per policy and the bound"
    assert number("#pareto > svg .mark") > 4 and number("#breakdown svg rect") > 4
    assert number("#timeline svg path") >= 1
    assert number("#failures tbody tr") >= 1, "none does not fit everywhere"
    assert number("#runs tbody tr") == 32
    assert "identity" in browser.script("document.getElementById('manifest').textContent")
    # Sorting: by time, both ways.
    times = ("[...document.querySelectorAll('#runs tbody tr')].map(r => +r.children["
             "[...document.querySelectorAll('#runs thead th')].findIndex(h => h.textContent.startsWith('slowdown'))"
             "].textContent || null).filter(v => v !== null && v > 0)")
    browser.script("document.querySelector('[data-column=slowdown_ppm]').click()")
    up = browser.script(times)
    assert up == sorted(up) and len(set(up)) > 5, up
    browser.script("document.querySelector('[data-column=slowdown_ppm]').click()")
    down = browser.script(times)
    assert down == sorted(up, reverse=True)
    # Filtering.
    browser.script("(f => { f.value = 'lru 0.5x'; f.dispatchEvent(new Event('input')); })(document.getElementById('filter'))")
    assert number("#runs tbody tr") == 2
    command = browser.script("document.querySelector('#runs tbody button').title")
    assert command.startswith("swaplab run --trace") and "--policy lru" in command and "--budget 0.5x" in command
    browser.script("(f => { f.value = ''; f.dispatchEvent(new Event('input')); })(document.getElementById('filter'))")
    # The other trace redraws the curves.
    before = browser.script("document.querySelector('#curves').innerHTML")
    browser.script("(s => { s.selectedIndex = 1; s.dispatchEvent(new Event('change')); })(document.querySelector('#choice select'))")
    assert browser.script("document.querySelector('#curves').innerHTML") != before
    for name, width, height, dark in (("light", 1280, 900, False), ("dark", 1280, 900, True), ("phone", 390, 844, False)):
        browser.screenshot(shots and os.path.join(shots, f"report-{name}.png"), width, height, dark)
        wide = browser.script("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        widest = browser.script("[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg') && e.getBoundingClientRect().right > 391).map(e => e.tagName + '#' + e.id).slice(0, 8).join(' ')")
        assert wide <= 0, f"{name}: the page is {wide} pixels too wide: {widest}"
        colors = browser.script("getComputedStyle(document.body).backgroundColor")
        assert (colors == "rgb(255, 255, 255)") != dark, colors
    requests = [e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    assert all(url == report.as_uri() or url.startswith(("data:", "about:")) for url in requests), requests
    problems = [e for e in browser.events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
                or (e.get("method") == "Runtime.consoleAPICalled" and e["params"]["type"] in ("error", "warning"))]
    assert not problems, problems
    return command, len(requests)


def check_alike(browser, report):
    """Names stay apart where they are cut, and the whole name is at hand; every policy has a look of its own."""
    for width in (1280, 390):
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        browser.open(report.as_uri())
        for chart in ("dots", "breakdown"):
            labels = json.loads(browser.script(
                f"JSON.stringify([...document.querySelectorAll('#{chart} svg text.name')].map("
                "t => [t.firstChild.data, t.querySelector('title').textContent]))"))
            assert len(labels) >= 3, (chart, labels)
            assert len({short for short, _ in labels}) == len({full for _, full in labels}) == len(labels), labels
            over = browser.script(f"[...document.querySelectorAll('#{chart} svg text')].filter(t => t.getBBox().x < 0).length")
            assert over == 0, f"{chart}: {over} labels begin outside the chart at {width} pixels"
        looks = json.loads(browser.script("JSON.stringify([...document.querySelectorAll('#curves .legend svg')].map(s => "
                                          "s.outerHTML.replace(/stroke-dasharray=\"null\"/g, '')))"))
        assert len(looks) >= 13 and len(set(looks)) == len(looks), looks


def main():
    program, source = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    shots = sys.argv[3] if len(sys.argv) > 3 else ""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        print("skip: no Chromium (apt-get install chromium)")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="swaplab-report-") as folder:
        base = pathlib.Path(folder)
        (base / "report.yaml").write_text(SWEEP.format(source=source))
        out = subprocess.run([program, "sweep", str(base / "report.yaml"), "-o", str(base / "r"), "--json"], check=True,
                             capture_output=True)
        results = json.loads(out.stdout)["folder"]
        report = base / "report.html"
        subprocess.run([program, "report", results, "-o", str(report)], check=True, capture_output=True)
        text = report.read_text()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
        browser = Browser(chromium, str(base / "profile"))
        (base / "alike.yaml").write_text(ALIKE)
        out = subprocess.run([program, "sweep", str(base / "alike.yaml"), "-o", str(base / "r"), "--json"], check=True,
                             capture_output=True)
        alike = base / "alike.html"
        subprocess.run([program, "report", json.loads(out.stdout)["folder"], "-o", str(alike), "--no-timeline"], check=True,
                       capture_output=True)
        try:
            command, requests = check(browser, report, shots)
            check_alike(browser, alike)
        finally:
            browser.close()
        # The command of a row repeats that run.
        repeated = subprocess.run([program, *command.split()[1:], "--json"], check=True, capture_output=True)
        time = json.loads(repeated.stdout)["results"][0]["steady_total_ns"]
        lines = [json.loads(line) for line in (pathlib.Path(results) / "results.jsonl").read_text().splitlines()]
        assert time in [line["metrics"].get("steady_total_ns") for line in lines
                        if line["factors"]["policy"] == "lru" and line["factors"]["budget"] == "0.5x"]
        print(f"{report.stat().st_size} bytes, {requests} requests (the file itself); renders, sorts, filters, "
              "light, dark and phone")


main()
