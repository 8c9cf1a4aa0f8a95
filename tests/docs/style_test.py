#!/usr/bin/python3 -B
"""Prose keeps two rules that a script can check: words that no page, comment or message uses, and sentences of at most 25 words.

  tests/docs/style_test.py             one case a rule; fails where a file has more findings than tests/docs/style.baseline allows
  tests/docs/style_test.py --list [FILE...]   every finding, as FILE:LINE: what
  tests/docs/style_test.py --update    writes the baseline anew; it may only shrink

Checked are the pages (*.md), comments of C++, Python and shell, and the strings of C++ sources. A file that is not in the
baseline has no findings.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BASELINE = ROOT / "tests/docs/style.baseline"
WORDS_MAX = 25
# A machine, a process or a thread is "it", and has a name: the client, the server, the poller.
BANNED = re.compile(
    r"\b(who|whom|whoever|nobody|somebody|everybody|anybody|he|him|his|she|her|neither so nor so|anew|of its own accord|"
    r"is told|are told|was told|be told|believes?|believed|wants?|wanted|hears?|heard|knows|knew|mends?|mended|let go|(?:this|the) room|rooms|nowhere)\b", re.I)
COMMENT_OF = {".h": "//", ".cc": "//", ".c": "//", ".py": "#", ".sh": "#", "": "#"}
Finding = collections.namedtuple("Finding", "path line rule text")


def git_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")
    return sorted({name for name in names if name and (ROOT / name).is_file()})


def is_checked(name, text):
    if name == "tests/docs/style_test.py" or name.startswith(("tests/fuzz/corpus", "tests/fuzz/regressions", "LICENSE")):
        return False
    suffix = pathlib.Path(name).suffix
    if suffix in (".md", ".h", ".cc", ".c", ".py", ".sh"):
        return True
    return suffix == "" and re.match(r"#!.*\b(sh|bash|python3)\b", text) is not None


def without_code(line):
    """Code spans count as one word; links as their text."""
    line = re.sub(r"`[^`]*`", "CODE", line)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)


def paragraphs_of_page(text):
    """Yields (line, text): a paragraph, a bullet or a cell of a table each."""
    number, inside, lines, begin = 0, False, [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.startswith("```"):
            inside = not inside
            line = ""
        elif inside:
            continue
        is_row = line.lstrip().startswith("|")
        if lines and (not line.strip() or is_row or re.match(r"\s*([-*]|\d+\.|#+)\s", line)):
            yield begin, " ".join(lines)
            lines = []
        if is_row:
            for cell in re.split(r"(?<!\\)\|", line):
                yield number, cell.strip()
        elif line.strip():
            if not lines:
                begin = number
            lines.append(re.sub(r"^\s*([-*]|\d+\.|#+)\s+", "", line.strip()))


def looks_like_a_picture(line):
    return bool(re.search(r"\S {2,}\S|[─│┌└▶▼]|-->|<--|\|.*\||__|\+--", line))


def paragraphs_of_source(text, mark):
    """Yields (line, text) of each block of comments, without diagrams; and of Python the docstrings."""
    lines, begin = [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        found = re.match(r"\s*" + re.escape(mark) + r"+ ?(.*)$", line)
        trailing = None if found else re.search(r"[;{,)]\s+" + re.escape(mark) + r" (.*)$", line)
        body = found[1] if found else ""
        if found and not body.startswith("!") and body.strip() and not looks_like_a_picture(body):
            if not lines or re.match(r"\s*([-*]|\d+\.)\s", body):
                if lines:
                    yield begin, " ".join(lines)
                lines, begin = [], number
            lines.append(body.strip())
            continue
        if lines:
            yield begin, " ".join(lines)
            lines = []
        if trailing:
            yield number, trailing[1]


def sentences_of(text):
    return re.split(r"(?<=[.!?:;])\s+", text)


def findings_in(path, text):
    suffix = pathlib.Path(path).suffix
    paragraphs = list(paragraphs_of_page(text) if suffix == ".md" else paragraphs_of_source(text, COMMENT_OF[suffix]))
    for line, paragraph in paragraphs:
        prose = without_code(paragraph)
        for sentence in sentences_of(prose):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > WORDS_MAX:
                yield Finding(path, line, "long", f"{len(words)} words: {sentence}")
        for found in BANNED.finditer(prose):
            yield Finding(path, line, "word", f'"{found[0]}": …{prose[max(0, found.start() - 30):found.end() + 30]}…')
    if suffix in (".h", ".cc"):
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith(("//", "#include")):
                continue
            for string in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
                for found in BANNED.finditer(string):
                    yield Finding(path, number, "word", f'"{found[0]}" in the string "{string}"')


def all_findings(names):
    findings = []
    for name in names:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if is_checked(name, text):
            findings += findings_in(name, text)
    return findings


def counts_of(findings):
    return collections.Counter((finding.path, finding.rule) for finding in findings)


def baseline():
    if not BASELINE.exists():
        return {}
    rows = (line.split() for line in BASELINE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return {(path, rule): int(count) for path, rule, count in rows}


def update(counts):
    rows = "".join(f"{path} {rule} {count}\n" for (path, rule), count in sorted(counts.items()))
    BASELINE.write_text("# Findings of tests/docs/style_test.py that are left: FILE RULE COUNT. Lines go, none is added.\n" + rows, encoding="utf-8")


def main(args):
    if args[:1] == ["--list"]:
        for finding in all_findings(args[1:] or git_files()):
            print(f"{finding.path}:{finding.line}: {finding.text}")
        return 0
    counts = counts_of(all_findings(git_files()))
    if args == ["--update"]:
        update(counts)
        return 0
    if args:
        sys.exit(__doc__)
    allowed, status = baseline(), 0
    for rule, sentence in (("word", "prose uses none of the words of the list"), ("long", f"no sentence has more than {WORDS_MAX} words")):
        wrong = [f"{path}: {count} findings, and the baseline allows {allowed.get((path, rule), 0)}: tests/docs/style_test.py --list {path}"
                 for (path, r), count in sorted(counts.items()) if r == rule and count > allowed.get((path, rule), 0)]
        for line in wrong:
            print(line)
        print(f"{'not ok' if wrong else 'ok'} - {sentence}, but for {sum(n for (_, r), n in counts.items() if r == rule)} older places")
        status |= bool(wrong)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
