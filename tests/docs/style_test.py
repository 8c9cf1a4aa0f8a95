#!/usr/bin/python3 -B
"""Prose keeps three rules that a script can check: words that no page, comment or message uses, sentences of at most 25 words, short names of tests.

  tests/docs/style_test.py                    one case a rule
  tests/docs/style_test.py --list [FILE...]   every finding, as FILE:LINE: what

Checked are the pages (*.md), comments of C++, Python and shell, the strings of C++ sources, and the names of C++ tests.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORDS_MAX = 25
# A machine, a process or a thread is "it", and has a name: the client, the server, the poller.
BANNED = re.compile(
    r"\b(who|whom|whoever|nobody|somebody|everybody|anybody|he|him|his|she|her|neither so nor so|anew|of its own accord|"
    r"is told|are told|was told|be told|believes?|believed|wants?|wanted|hears?|heard|knows|knew|mends?|mended|let go|(?:this|the) room|rooms|nowhere)\b", re.I)
# A test's name is a sentence too.
TEST_NAME = re.compile(r"^TEST(?:_F|_P)?\(\w+,\s*(\w+)\)", re.M)
TEST_NAME_MAX = 60
BANNED_IN_NAMES = re.compile(r"(?:%s|Tells?|Told|Dear|Rude|Strangers?|Newcomers?)(?=[A-Z]|$)" %
                             "|".join(w.title() for w in ("who whom whoever nobody somebody everybody anybody his him her anew believe believes believed "
                                                          "want wants wanted hear hears heard know knows knew mend mends nowhere").split()))
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
    for found in TEST_NAME.finditer(text if suffix == ".cc" else ""):
        line = text[:found.start()].count("\n") + 1
        if len(found[1]) > TEST_NAME_MAX:
            yield Finding(path, line, "name", f"{len(found[1])} letters: {found[1]}")
        if word := BANNED_IN_NAMES.search(found[1]):
            yield Finding(path, line, "name", f'"{word[0]}" in {found[1]}')
    if suffix in (".h", ".cc"):
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith(("//", "#include")):
                continue
            for string in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
                if re.fullmatch(r"\w+", string):
                    continue  # a name that other programs use, such as a key of JSON
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


def main(args):
    if args[:1] == ["--list"]:
        for finding in all_findings(args[1:] or git_files()):
            print(f"{finding.path}:{finding.line}: {finding.text}")
        return 0
    if args:
        sys.exit(__doc__)
    counts = collections.Counter((finding.path, finding.rule) for finding in all_findings(git_files()))
    status = 0
    for rule, sentence in (("word", "prose uses none of the words of the list"), ("long", f"no sentence has more than {WORDS_MAX} words"),
                           ("name", f"the names of tests have at most {TEST_NAME_MAX} letters, and none of these words")):
        wrong = [f"{path}: {count} findings: tests/docs/style_test.py --list {path}"
                 for (path, found), count in sorted(counts.items()) if found == rule]
        for line in wrong:
            print(line)
        print(f"{'not ok' if wrong else 'ok'} - {sentence}")
        status |= bool(wrong)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
