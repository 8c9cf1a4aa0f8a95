#!/usr/bin/python3 -B
"""The pages for people say what is so: their links lead somewhere, their code is run by a test, tools/ERRORS.md has every
error. Reads the sources as they lie here; prints a case a line, as the other scripts do.

  tests/docs/docs_test.py
"""

import collections
import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ERRORS_PAGE = "tools/ERRORS.md"

# Code blocks by the word behind ```: what becomes of them. A block without a word shows what something looks like.
#   sh       commands, run as printed by a test: RUN_BY says by which
#   bash     commands that need root, hardware, a container engine or the machine for themselves: their syntax and our flags are looked at here
#   cpp, c   programs, compiled and run by a test
#   python   programs, run by a test
#   console, kvcli   commands and what they print, compared by a test
#   errors   error messages (ERRORS_PAGE)
#   cmake, starlark, bazelrc  parts of a project's files; a test builds the project
#   text     what something prints or looks like, a formula
RUN_BY = {
    ("README.md", "tools/quickstart"): ("tests/scripts/quickstart_test.sh", "tools/quickstart"),
    ("README.md", "export OSPREY_SERVER"): ("tests/docs/page_commands_test.cc", '"README.md"'),
    ("server/OPERATING.md", "tools/package"): ("tests/scripts/package_in_lab", "server/OPERATING.md 'tools/package"),
    ("client/README.md", "gcc "): ("tests/client/c_api/c_program_test.cc", 'Block("sh")'),
    ("tools/README.md", "export OSPREY_SERVER"): ("tests/tools/kvbench_test.cc", 'BlockOfReadme("export'),
    ("tests/README.md", "tools/test"): (".ci/run", "tools/test"),
    ("tests/SIMULATION.md", "bazel run //tests/simulation:simulate"): ("tests/docs/page_commands_test.cc", '"tests/SIMULATION.md"'),
    ("server/OPERATING.md", "(umask 077;"): ("tests/scripts/package_in_lab", "server/OPERATING.md '(umask 077;"),
    ("server/OPERATING.md", "kvcli doctor --self-test=serve"): ("tests/rdma/selftest_two_nodes_test.cc", "server/OPERATING.md"),
    ("server/OPERATING.md", "sysctl -w vm.nr_hugepages"): ("tests/tools/doctor/doctor_fixes_test.cc", "server/OPERATING.md"),
    ("server/cluster/OPERATING.md", "D="): ("tests/docs/page_commands_test.cc", '"server/cluster/OPERATING.md"'),
    ("server/OPERATING.md", "bazel-bin/"): ("tests/docs/page_commands_test.cc", '"server/OPERATING.md"'),
    ("server/OPERATING.md", "apt-get install ./libosprey"): ("tests/scripts/package_in_lab", "server/OPERATING.md 'apt-get install ./libosprey"),
    "cmake": ("tests/scripts/package_test.sh", "block_of client/README.md cmake"),
    "bazelrc": ("tests/scripts/package_test.sh", "block_of client/README.md bazelrc"),
    "starlark": ("tests/scripts/package_test.sh", "block_of client/README.md starlark"),
    "cpp": ("tests/docs/readme_examples_test.cc", "```cpp"),
    "c": ("tests/client/c_api/c_program_test.cc", "client/README.md"),
    "python": ("tests/client/python/readme_test.py", "client/python/README.md"),
    "console": ("tests/tools/kvcli_readme_test.cc", "tools/README.md"),
    "kvcli": ("tests/tools/kvcli_readme_test.cc", "tools/README.md"),
}
KINDS = {"sh", "bash", "cpp", "c", "python", "console", "kvcli", "cmake", "starlark", "bazelrc", "errors", "text", ""}
# Flags of docker and bazel that stand alone in a sentence.
FLAGS_OF_OTHERS = {"cap-add", "ulimit"}
COMMAND = re.compile(r"^(\$ |osprey> )?(bazel (run|build|test)|bazel-bin/|tools/\w+ |kvcli |kvserver |kvbench |apt-get )")

# --- Pages -------------------------------------------------------------------------------------------------------------

Block = collections.namedtuple("Block", "page line kind text")


def git_files(*patterns):
    # What is new counts as well, and what is deleted does not.
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return sorted({name for name in names if (ROOT / name).is_file()})


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks_of(page):
    blocks, inside, begin, lines = [], None, 0, []
    for number, line in enumerate(read(page).splitlines(), 1):
        if line.startswith("```"):
            if inside is None:
                inside, begin, lines = line[3:].strip(), number, []
            else:
                blocks.append(Block(page, begin, inside, "\n".join(lines)))
                inside = None
        elif inside is not None:
            lines.append(line)
    return blocks


def anchors_of(page):
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def links_lead_somewhere(pages):
    wrong = []
    for page in pages:
        text = re.sub(r"^```.*?^```", "", read(page), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+://", target):
                continue
            path, _, anchor = target.partition("#")
            to = (ROOT / page).parent / path if path else ROOT / page
            if not to.exists():
                wrong.append(f"{page}: {target}: there is no such file")
            elif anchor and anchor not in anchors_of(to.resolve().relative_to(ROOT)):
                wrong.append(f"{page}: {target}: there is no such heading")
    return wrong


def runner_of(block):
    found = [by for key, by in RUN_BY.items()
             if key == block.kind or (block.kind == "sh" and key[0] == block.page and block.text.startswith(key[1]))]
    return found[0] if found else None


def every_block_is_run_by_a_test(pages):
    wrong = []
    for block in (block for page in pages for block in blocks_of(page)):
        where = f"{block.page}:{block.line}"
        if block.kind not in KINDS:
            wrong.append(f"{where}: ```{block.kind} is no kind of code block; they are {' '.join(sorted(KINDS))}")
        elif block.kind in ("text", "") and any(COMMAND.match(line) for line in block.text.splitlines()):
            wrong.append(f"{where}: has a command: mark the block as sh, and have a test run it (RUN_BY)")
        elif block.kind in ("sh", "cpp", "c", "python", "console", "kvcli"):
            by = runner_of(block)
            if by is None:
                wrong.append(f"{where}: no test runs this ```{block.kind} block; have one do so, and name it in RUN_BY")
            elif not (ROOT / by[0]).is_file() or by[1] not in read(by[0]):
                wrong.append(f"{where}: {by[0]}, which runs it, says nothing of {by[1]}")
    return wrong


TRUST_PAGE = "server/TRUST.md"
ATTACKS_SCRIPT = "tests/adversary/shm_attacks.py"


def every_test_of_the_page_on_trust_exists():
    tests = {".".join(name) for source in git_files("tests/*.cc")
             for name in re.findall(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", read(source), re.M)}
    attacks = set(re.findall(r"^def (\w+)\(", read(ATTACKS_SCRIPT), re.M))
    wrong, has_tests = [], False
    for number, line in enumerate(read(TRUST_PAGE).splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and not has_tests and cells[-1] == "test":
            has_tests = True
            continue
        has_tests = has_tests and bool(cells)
        names = re.findall(r"`(\w+Test\.\w+|Verbs\w+\.[A-Z]\w+)`", line)
        wrong += [f"{TRUST_PAGE}:{number}: there is no test {name}" for name in names if name not in tests]
        if has_tests and not set(cells[-1]) <= set("-"):
            named = set(re.findall(r"`(\w+)`", cells[-1]))
            wrong += [f"{TRUST_PAGE}:{number}: there is no attack {name}" for name in sorted(named - attacks)]
            if not names and not named:
                wrong.append(f"{TRUST_PAGE}:{number}: the bound has no test")
    return wrong


PROGRAMS = {"kvserver": "server/main.cc", "kvcli": "tools/kvcli.cc", "kvbench": "tools/kvbench.cc", "catalog": "tools/quickstart.d/catalog.cc"}
SCRIPTS = ["tools/" + name for name in ("bench", "format", "install-packages", "lab", "package", "quickstart", "record", "test")]
SCRIPTS += ["tests/benchmarks/count_instructions", "tests/fuzz/run", "tests/faults/run", "tests/simulation/simulate"]
COMMAND_OF_OURS = re.compile(r"(?<![\w/.-])(?:bazel-bin/)?(" + "|".join(SCRIPTS) + r"|(?:(?:server|tools)/)?(?:" + "|".join(PROGRAMS) +
                             r"))(?![\w./-])([^|;&\n]*)")
FLAG = re.compile(r"(?:^|(?<=[\s\[|(]))--([a-z][a-z0-9-]*)")


@functools.lru_cache(maxsize=None)
def flags_of(program):
    """Of a program, as its sources define them (see server/program/flags.h); of a script, those that it names."""
    if program in SCRIPTS:
        source = read(program if (ROOT / program).is_file() else program + ".cc")
        parsed = {"help"} if "argparse" in source else set()
        return parsed | set(re.findall(r"--([a-z][a-z0-9-]*)", source)) | set(re.findall(r"^DEFINE_\w+\(\s*(\w+)", source, re.M))
    names = re.findall(r"^DEFINE_\w+\(\s*(\w+)", read(PROGRAMS[program]), re.M)
    return {name.replace("_", "-") for name in names} | {"flagfile", "help", "version"}


def wrong_flags(text):
    """Of the commands of ours in it: "tools/lab has no flag --x"."""
    wrong = []
    for program, arguments in COMMAND_OF_OURS.findall(text):
        program = program if program in SCRIPTS else program.split("/")[-1]
        # What stands behind -- alone is another's.
        own = re.split(r" -- |@", arguments)[0]
        wrong += [f"{program} has no flag --{flag}" for flag in FLAG.findall(own) if flag not in flags_of(program)]
    return wrong


def shell_is_right(pages):
    """Of all sh and bash blocks: the syntax, and that our programs have these flags."""
    wrong = []
    for block in (block for page in pages for block in blocks_of(page) if block.kind in ("sh", "bash")):
        where = f"{block.page}:{block.line}"
        result = subprocess.run(["bash", "-n"], input=block.text, stderr=subprocess.PIPE, text=True, check=False)
        wrong += [f"{where}: {line}" for line in result.stderr.splitlines()]
        wrong += [f"{where}: {line}" for line in wrong_flags(re.sub(r"#.*", "", block.text))]
    return wrong


def commands_in_sentences_are_right(pages):
    """Of what stands in `…`: our programs and scripts have these flags; a flag alone is one of any of them."""
    of_any = set().union(*(flags_of(program) for program in [*PROGRAMS, *SCRIPTS]))
    wrong, seen = [], 0
    for page in pages:
        prose = re.sub(r"^```.*?^```", "", read(page), flags=re.M | re.S)
        for span in re.findall(r"`([^`\n]+)`", prose):
            wrong += [f"{page}: `{span}`: {line}" for line in wrong_flags(span)]
            alone = re.match(r"--([a-z][a-z0-9-]*)", span)
            seen += bool(alone) or bool(COMMAND_OF_OURS.search(span))
            if alone and alone[1] not in of_any | FLAGS_OF_OTHERS:
                wrong.append(f"{page}: `{span}`: no program and no script has this flag")
    return wrong if seen > 100 else wrong + [f"only {seen} commands and flags were found: are they written in another way now?"]


# --- Errors ------------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)+'
                       |R"\((?P<raw>.*?)\)"|"(?P<string>(?:[^"\\\n]|\\.)*)"|(?P<word>\w+(?:::\w+)*)|(?P<other>\S)""",
                   re.S | re.X)
MAKES_ERROR = re.compile(r"(Error|^Status|::Status|^Make|^Wrong|^Fail|^Invalid|^Malformed|^NotOurs)$")
# What has fewer letters says too little to be looked for.
LETTERS_MIN = 10
WORDS_MIN = 6
# tools/bench.d measures, examples show; the doctor's findings tell their fixes themselves.
SOURCES = ["index/*.cc", "rdma/*.cc", "rdma/*.h", "rdma/selftest/*.cc", "client/*.cc", "client/*.h", "server/*.cc",
           "tools/*.cc", "tools/loadgen/*.cc", ":!tools/doctor/*", ":!tools/bench.d/*", ":!client/examples/*"]
ESCAPES = {'\\"': '"', "\\\\": "\\", "\\n": " "}

Message = collections.namedtuple("Message", "where literals")


def unescaped(text):
    return re.sub(r'\\["\\n]', lambda found: ESCAPES[found[0]], text)


def literals_from(tokens, begin):
    """The strings within the parentheses that open at `begin`, neighbours joined; and where they close."""
    depth, literals, glue, at = 0, [], False, begin
    for at in range(begin, len(tokens)):
        string = tokens[at]["string"]
        depth += {"(": 1, ")": -1}.get(tokens[at]["other"], 0)
        if depth == 0:
            break
        if string is not None and glue:
            literals[-1] += unescaped(string)
        elif string is not None:
            literals.append(unescaped(string))
        glue = string is not None
    return literals, at


def messages_of(name):
    """Of each call that makes an error, the strings in it."""
    text = re.sub(r"^#.*", "", read(name), flags=re.M)
    tokens = [token for token in TOKEN.finditer(text) if any(value is not None for value in token.groups())]
    messages, at = [], 0
    while at + 1 < len(tokens):
        if tokens[at]["word"] and MAKES_ERROR.search(tokens[at]["word"]) and tokens[at + 1]["other"] == "(":
            literals, end = literals_from(tokens, at + 1)
            if literals:
                line = text[:tokens[at].start()].count("\n") + 1
                messages.append(Message(f"{name}:{line}", literals))
                at = end
        at += 1
    return messages


def plain(text):
    """For comparing: no marks of the page, no formats, one blank for many."""
    text = re.sub(r"%[-\d*.]*[a-z]", "…", text.replace("`", ""))
    return re.sub(r"\s+", " ", text).strip()


def entries_of_errors_page():
    """All that the page quotes: in `…`, and the lines of its blocks."""
    text = read(ERRORS_PAGE)
    blocks = [line for block in blocks_of(ERRORS_PAGE) if block.kind == "errors" for line in block.text.splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    # Of tables: what is quoted in the first column, and elsewhere what stands for a part of a message.
    quoted = [entry for row in re.findall(r"^\| (`.*)$", prose, re.M) for entry in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    return blocks + quoted


def pieces_of(text):
    return [piece for piece in (plain(part).strip(" .,:;'\"()") for part in text.split("…")) if piece]


def every_error_has_an_entry(messages):
    page = plain(read(ERRORS_PAGE)).replace("\\|", "|")
    missing = []
    for message in messages:
        # What says enough: words, and not the mere name of a flag or an option.
        pieces = [piece for literal in message.literals for piece in pieces_of(plain(literal))]
        pieces = [piece for piece in pieces if len(piece) >= LETTERS_MIN and " " in piece]
        # The page may quote the first words only; as many as tell it from others.
        if pieces and not any(" ".join(piece.split()[:WORDS_MIN]) in page for piece in pieces):
            missing.append(f"{message.where}: \"{' … '.join(message.literals)}\" is not in {ERRORS_PAGE}: add it, and its fix")
    return missing


def every_entry_is_an_error():
    """Each piece of what the page quotes stands in some string of the sources."""
    strings = []
    for name in git_files(*SOURCES, "server/main.cc"):
        text = re.sub(r'"\s*\n?\s*"', "", re.sub(r"^#.*", "", read(name), flags=re.M))
        strings += [plain(unescaped(found)) for found in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)]
    sources = "\n".join(strings)
    wrong = []
    for entry in entries_of_errors_page():
        gone = [piece for piece in pieces_of(entry.replace("\\|", "|")) if len(piece) >= 4 and piece not in sources]
        wrong += [f"{ERRORS_PAGE}: \"{entry}\": no program says \"{piece}\" any more" for piece in gone]
    return wrong


def codes_of_reasons(page):
    """Yields (reason, status codes) of each entry of the client's page: those that it names, or those of its list's first line."""
    def named(text):
        return {name.title().replace("_", "") for name in re.findall(r"`([A-Z_]+)`", text)}
    of_list = set()
    for line in page.splitlines():
        if entry := re.match(r"- (.*?`k[A-Z]\w+` \d{3}.*?): ", line):
            for reason in re.findall(r"`(k\w+)` \d{3}", entry[1]):
                yield reason, named(entry[1]) or of_list
        elif line.endswith(":"):
            of_list = named(line)


def every_reason_has_an_entry():
    """client/README.md has each Reason and each error number of C; every exit status that programs can end with is here."""
    page = read("client/README.md")
    reasons = dict(re.findall(r"^  (k[A-Z]\w+) = (\d+),", read("rdma/reasons.h"), re.M))
    errors = dict(re.findall(r"^\s*OSPREY_ERROR_(\w+) = (\d+)", read("client/osprey.h"), re.M))
    numbers = errors.values()
    del reasons["kNone"]
    missing = [f"client/README.md: no {reason}" for reason in reasons if f"`{reason}`" not in page]
    missing += [f"client/osprey.h: no OSPREY_ERROR_{name} = {number}, as {reason}" for reason, number in reasons.items()
                if errors.get(name := re.sub(r"(?<!^)([A-Z])", r"_\1", reason[1:]).upper()) != number]
    missing += [f"client/README.md: no error number {number}" for number in numbers
                if int(number) >= 100 and not re.search(rf"\b{number}\b", page)]
    if len(reasons) < 30 or len(numbers) < 30:
        missing.append(f"{len(reasons)} Reasons and {len(numbers)} numbers were found; are they declared in another way now?")
    codes = dict(re.findall(r"\{Reason::(k\w+), Code::k(\w+),", read("rdma/reasons.cc")))
    entries = list(codes_of_reasons(page))
    missing += [f"client/README.md: {reason} is {codes.get(reason)} in rdma/reasons.cc" for reason, stated in entries
                if codes.get(reason) not in stated]
    if len(entries) < 30:
        missing.append(f"client/README.md: {len(entries)} entries of reasons were found; have they another form now?")
    statuses = {int(n) for n in re.findall(r"^  k\w+ = (\d)", read("tools/common/exit_status.h"), re.M)}
    statuses |= {int(n) for n in re.findall(r"k\w+ = (\d),", read("server/serve.h"))}
    rows = {int(n) for n in re.findall(r"^\| (\d) \|", read(ERRORS_PAGE), re.M)}
    return missing + [f"{ERRORS_PAGE}: nothing of exit status {n}" for n in sorted(statuses - rows)]


# --- Mistakes made on purpose ------------------------------------------------------------------------------------------


def every_mistake_is_in_the_table():
    """tests/README.md has each Mutant, and the aim in which mutation_test looks for it, or the test that does instead."""
    enum = re.search(r"enum class Mutant \{(.*?)\};", read("index/layout/test_hooks.h"), re.S)[1]
    bugs = set(re.findall(r"^  (k\w+),", enum, re.M)) - {"kNone"}
    durable = set(re.findall(r"MISTAKE\((k\w+)\)", read("tests/simulation/durable_simulation_test.cc")))
    durable_rows = set(re.findall(r"^\| `(k\w+)` \|.*\| `durable_simulation_test` \|", read("tests/README.md"), re.M))
    bugs -= durable & durable_rows
    alone = re.findall(r"^\| `(k\w+)` \|[^|]*\| `(expiry_test)` \|", read("tests/README.md"), re.M)
    bugs -= {bug for bug, test in alone if f"Mutant::{bug}" in read(f"tests/index/{test}.cc")}
    aims = dict(re.findall(r"BUG\((k\w+),\s*k(\w+)\)", read("tests/simulation/mutation_test.cc")))
    rows = dict(re.findall(r"^\| `(k\w+)` \|.*\| ([a-z][a-z-]*) \|$", read("tests/README.md"), re.M))
    wrong = [f"tests/README.md: no row for {bug}" for bug in sorted(bugs - rows.keys())]
    wrong += [f"tests/README.md: {row} is no Mutant" for row in sorted(rows.keys() - bugs)]
    wrong += [f"tests/simulation/mutation_test.cc: does not look for {bug}" for bug in sorted(bugs - aims.keys())]
    for bug in sorted(rows.keys() & aims.keys()):
        aim = re.sub(r"(?<!^)([A-Z])", r"-\1", aims[bug]).lower()
        if rows[bug] != aim:
            wrong.append(f"tests/README.md: mutation_test looks for {bug} with aim {aim}, not {rows[bug]}")
    wrong += [f"tests/README.md: not both a row and a test: {name}" for name in sorted(durable ^ durable_rows)]
    wrong += every_mistake_of_the_log_is_in_the_table()
    return wrong if len(bugs) > 30 else [f"only {len(bugs)} mistakes were found: is Mutant declared in another way now?"]


def every_mistake_of_the_log_is_in_the_table():
    enum = re.search(r"enum class Mutant : uint8_t \{(.*?)\};", read("server/wal/format/test_hooks.h"), re.S)[1]
    mutants = set(re.findall(r"^  (k\w+),", enum, re.M)) - {"kNone"}
    tested = set(re.findall(r"(?:Mutant::|MUTANT\()(k\w+)", read("tests/server/wal/wal_mutants_test.cc")))
    rows = set(re.findall(r"^\| `(k\w+)` \| D\d", read("tests/README.md"), re.M))
    wrong = [f"tests/README.md: no row for {mutant}" for mutant in sorted(mutants - rows)]
    wrong += [f"tests/README.md: {row} is no Mutant of server/wal" for row in sorted(rows - mutants)]
    wrong += [f"tests/server/wal/wal_mutants_test.cc: does not look for {mutant}" for mutant in sorted(mutants - tested)]
    return wrong if len(mutants) > 10 else wrong + [f"only {len(mutants)} mistakes were found in server/wal/format/test_hooks.h"]


# ------------------------------------------------------------------------------------------------------------------------


def every_named_file_and_test_is_there(pages):
    """In code spans: NAME.h and the like, with or without folders, and NAME_test, a file or a target."""
    paths = ["/" + path for path in git_files()]
    targets = {name for build in git_files("*BUILD") for name in re.findall(r'name = "(\w+)"', read(build))}
    targets |= {name for build in git_files("*BUILD") for name in re.findall(r'"(\w+_test)"', read(build))}
    targets |= {f"{name}_replay_test" for name in targets}
    wrong = []
    for page in pages:
        text = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), read(page), flags=re.S | re.M)
        for number, line in enumerate(text.splitlines(), 1):
            for name in re.findall(r"`((?:\w+/)*\w+\.(?:cc|h|py|sh|pml|bzl)|(?:[a-z]\w*/)*[a-z]\w*_test)`", line):
                known = "NAME" in name or any(path.endswith("/" + name) or path.endswith(f"/{name}.cc") for path in paths) or name in targets
                if not known:
                    wrong.append(f"{page}:{number}: there is no {name}")
    return wrong


def main():
    pages = git_files("*.md")
    messages = [message for name in git_files(*SOURCES) for message in messages_of(name)]
    few = [] if len(messages) > 400 else [f"only {len(messages)} errors were found: are they made in another way now?"]
    cases = [
        ("the links of all pages lead somewhere", links_lead_somewhere(pages)),
        ("every source file and test that a page names is there", every_named_file_and_test_is_there(pages)),
        ("every code block of a page is run by a test", every_block_is_run_by_a_test(pages)),
        ("the shell commands of all pages are well formed, and their flags exist", shell_is_right(pages)),
        ("the commands and flags in their sentences exist", commands_in_sentences_are_right(pages)),
        ("every error that programs can print has an entry", few + every_error_has_an_entry(messages)),
        ("every entry is an error that a program prints", every_entry_is_an_error()),
        ("every mistake that is made on purpose is in the table", every_mistake_is_in_the_table()),
        ("every bound of the page on trust has a test, and the test exists", every_test_of_the_page_on_trust_exists()),
        ("every Reason, error number and exit status has an entry", every_reason_has_an_entry()),
    ]
    for sentence, wrong in cases:
        for line in wrong:
            print(line)
        print(f"{'not ok' if wrong else 'ok'} - {sentence}")
    sys.exit(any(wrong for _, wrong in cases))


if __name__ == "__main__":
    main()
