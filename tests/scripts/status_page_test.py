#!/usr/bin/python3 -IB
"""The status page of a kvserver in a real browser (Debian's chromium, headless). Prints a line a case.

usage: tests/scripts/status_page_test.py [--picture=FILE.png]   only takes a picture of the page, after minutes of load

Bazel must have built //server:kvserver, //tools:kvcli and //tools:kvbench. The browser is driven by the DevTools protocol
over a pipe.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S = 60
PICTURE_S = 240  # of load
# A name that is HTML: this runs if anything takes it for that. (A socket's path has no slash in it.)
MARKUP = "<img src=x onerror=document.title=1>"


class Browser:
    """One page. `run` evaluates an expression of JavaScript in it."""

    def __init__(self, profile):
        to_browser, self.to_browser = os.pipe()
        self.from_browser, from_browser = os.pipe()
        for end in (to_browser, from_browser):
            os.set_inheritable(end, True)
        # Its ends are the descriptors 3 and 4, by its rule.
        command = f'exec chromium "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "-", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--window-size=1200,1060", f"--user-data-dir={profile}"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.calls = 0
        self.unread = b""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method, **params):
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while True:
            answer = self.next_message(end)
            if answer.get("id") == self.calls:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def next_message(self, end):
        while b"\0" not in self.unread:
            if not select.select([self.from_browser], [], [], max(end - time.monotonic(), 0))[0]:
                raise AssertionError(f"the browser does not answer within {PATIENCE_S} s")
            some = os.read(self.from_browser, 1 << 20)
            if not some:
                raise AssertionError("the browser has ended")
            self.unread += some
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression):
        """Until it is true."""
        end = time.monotonic() + PATIENCE_S
        while not self.run(expression):
            if time.monotonic() > end:
                raise AssertionError(f"not within {PATIENCE_S} s: {expression}")
            time.sleep(0.1)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def cell(self, row, column):
        return self.run(f"document.querySelector('#row-{row}').children[{column}].textContent")

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)


class Server:
    def __init__(self, folder, name):
        place = folder / name
        place.mkdir()
        self.uri = f"shm://{place}/s"
        self.log = folder / "kvserver.err"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [ROOT / "bazel-bin/server/kvserver", f"--listen={self.uri}", "--memory=64MiB", "--metrics=0", f"--data-dir={folder}/data"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        self.root = None
        end = time.monotonic() + PATIENCE_S
        while self.root is None:
            found = re.search(r"metrics at (http://[^/]*/)metrics\n", self.log.read_text(encoding="utf-8"))
            self.root = found and found[1]
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(self.log.read_text(encoding="utf-8"))
            time.sleep(0.05)

    def stats(self):
        output = subprocess.run([ROOT / "bazel-bin/tools/kvcli", f"--server={self.uri}", "stats"], check=True, capture_output=True, text=True).stdout
        return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    def bench(self, *arguments):
        return subprocess.Popen([ROOT / "bazel-bin/tools/kvbench", *arguments, f"--server={self.uri}", "--records=20000", "--value-size=100"],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def number(text):
    return int(text.replace(",", ""))


def shows_the_state_without_javascript(browser, server):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    with urllib.request.urlopen(server.root) as answer:
        page = answer.read().decode()
    browser.open(server.root)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "PUTs" in page
    assert number(browser.cell("puts", 1)) == int(server.stats()["requests_put"]) > 0
    assert browser.run("getComputedStyle(document.querySelector('#pause')).display !== 'none' && document.querySelector('#pause').offsetParent === null")
    assert browser.run("document.querySelector('#row-keys').offsetParent !== null")


def is_live_while_clients_work(browser, server, picture=None):
    browser.open(server.root)
    browser.wait("document.documentElement.classList.contains('is-live')")
    load = server.bench("run", "--workload=b", "--target=4000", "--duration=600")
    try:
        def rate(row):
            return f"Number(document.querySelector('#row-{row}').children[3].textContent.replaceAll(',', '')) > 0"

        browser.wait(f"{rate('puts')} && {rate('client_gets')} && {rate('reads_per_get')}")
        browser.wait("document.querySelector('#row-put_p99').children[3].textContent.endsWith('s')")
        browser.wait("document.querySelector('#row-get_p50').children[3].textContent.endsWith('s')")
        for chart in ("operations", "put", "get", "memory", "lag"):
            browser.wait(f"document.querySelector('#chart-{chart} polyline').getAttribute('points').split(' ').length >= 2")
        if picture is not None:
            time.sleep(PICTURE_S)
            browser.picture(picture)
    finally:
        load.kill()
        load.wait()


def says_what_kvcli_says(browser, server):
    stats = server.stats()
    browser.wait(f"document.querySelector('#row-puts').children[1].textContent.replaceAll(',', '') === '{stats['requests_put']}'")
    assert number(browser.cell("keys", 1)) == int(stats["keys"]) == 20000
    assert browser.cell("load_factor", 1) == f"{float(stats['load_factor']):.3f}"
    assert browser.cell("durability", 1) == stats["durability"]
    share = int(stats["index_bytes"]) / int(stats["region_bytes"]) * 1000
    assert abs(float(browser.run("document.querySelector('#use-index').getAttribute('width')")) - share) < 0.01


def takes_no_text_for_html(browser, server):
    assert MARKUP in server.uri
    assert browser.run("document.querySelector('h1').textContent") == f"Osprey {server.uri}"
    assert browser.run("document.title") == f"Osprey {server.uri}"
    assert MARKUP in browser.cell("listen", 1)
    assert browser.run("document.querySelectorAll('img').length") == 0


def is_used_by_keyboard(browser, server):
    del server
    browser.run("document.querySelector('#chart-operations').focus()")
    assert browser.run("document.querySelector('#chart-operations .cursor').getAttribute('visibility')") == "hidden"
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")
    assert browser.run("document.querySelector('#chart-operations .cursor').getAttribute('visibility')") == "visible"
    assert re.search(r"\d:\d\d", browser.run("document.querySelector('#chart-operations .top').textContent"))
    browser.press("Escape")
    assert browser.run("document.querySelector('#chart-operations .cursor').getAttribute('visibility')") == "hidden"
    browser.press("p")
    assert browser.run("document.querySelector('#pause').textContent") == "Continue"
    browser.press("p")
    assert browser.run("document.querySelector('#pause').textContent") == "Pause"


def has_a_dark_mode(browser, server):
    del server
    backgrounds = []
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        backgrounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(13, 17, 23)"], backgrounds


def says_that_the_server_is_gone(browser, server):
    assert browser.run("document.querySelector('#health').className") == "good"
    server.end()
    browser.wait("document.querySelector('#health').className === 'bad'")
    assert "does not answer" in browser.run("document.querySelector('#health').textContent")


CASES = [
    shows_the_state_without_javascript, is_live_while_clients_work, says_what_kvcli_says, takes_no_text_for_html,
    is_used_by_keyboard, has_a_dark_mode, says_that_the_server_is_gone,
]


def run_cases(browser, server):
    failed = 0
    for case in CASES:
        sentence = f"the status page {case.__name__.replace('_', ' ').replace('javascript', 'JavaScript').replace('html', 'HTML')}"
        try:
            case(browser, server)
            print(f"ok - {sentence}", flush=True)
        except AssertionError as error:
            print(f"{error}\nnot ok - {sentence}", flush=True)
            failed += 1
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", metavar="FILE.png", help="only take a picture of the page, after minutes of load")
    picture = parser.parse_args().picture
    if shutil.which("chromium") is None:
        print("there is no chromium; tools/install-packages browser installs it\nnot ok - the status page works in a browser")
        return 1
    with tempfile.TemporaryDirectory(prefix="status-page-") as scratch:
        folder = pathlib.Path(scratch)
        server = Server(folder, MARKUP if picture is None else "run")
        browser = None
        try:
            server.bench("load", "--depth=16").wait()
            browser = Browser(folder / "profile")
            if picture is None:
                return run_cases(browser, server)
            is_live_while_clients_work(browser, server, picture)
            return 0
        finally:
            if browser is not None:
                browser.end()
            server.end()


if __name__ == "__main__":
    sys.exit(main())
