#!/usr/bin/env python3
"""Makes the documents of the Debian package from what the programs say of themselves.

  generate.py flagfile PROGRAM HEAD            the example flag file: HEAD, then every flag of PROGRAM, commented out
  generate.py man NAME PROGRAM VERSION DATE    the man page (mdoc) of kvserver, kvcli or kvbench
  generate.py completion NAME PROGRAM          bash completion

PROGRAM is the path of the program. Nothing is kept here that --help tells: only what it does not.
"""

import json
import re
import subprocess
import sys

TIMEOUT_S = 20
TEXT_COLUMNS = 70

# "--name=VALUE  what", or "-n VALUE  what".
FLAG = re.compile(r"^  (--[a-z][a-z0-9-]*|-[a-z](?= ))(?:[= ]([^\s-]\S*)(?=\s|$))?(?:\s+(\S.*))?$")
# Up to an empty line.
EXIT_STATUS = re.compile(r"^exit status: ((?:.+\n?)+)", re.IGNORECASE | re.MULTILINE)
CONTINUED = re.compile(r"^ {8,}(\S.*)$")

OSPREY_SERVER = r"""
.Sh ENVIRONMENT
.Bl -tag -width Ds
.It Ev OSPREY_SERVER
The server where
.Fl \-server
is not given.
.El
"""

# What --help does not tell: section, one line, and sections besides.
PAGES = {
    "kvserver": {
        "section": 8,
        "line": "key-value store whose clients read by RDMA READs",
        "before": r"""
.Sh FILES
.Bl -tag -width Ds
.It Pa /etc/osprey/kvserver.flags
Flags of the service
.Nm osprey ,
with every flag explained.
.It Pa /run/osprey/osprey.sock
Where the service accepts clients of this host, as it is installed.
.El
""",
        "after": r"""
.Sh EXAMPLES
A server for RDMA and for clients of its own host:
.Dl kvserver --listen=rdma://10.0.0.7:7411,shm:///run/osprey.sock --memory=4GiB
.Pp
As a service:
.Dl systemctl enable --now osprey
.Sh SEE ALSO
.Xr kvcli 1
""",
    },
    "kvcli": {
        "section": 1,
        "line": "commands on an Osprey server, and a doctor for RDMA",
        "before": OSPREY_SERVER,
        "after": r"""
.Sh EXAMPLES
.Dl kvcli --server=shm:///run/osprey/osprey.sock put planet saturn
.Dl kvcli --server=rdma://10.0.0.7 get planet
.Dl kvcli doctor --memory=4GiB
.Sh SEE ALSO
.Xr kvserver 8
""",
    },
    "kvbench": {
        "section": 1,
        "line": "measures an Osprey server with the YCSB workloads",
        "before": OSPREY_SERVER,
        "after": r"""
.Sh SEE ALSO
.Xr kvcli 1 ,
.Xr kvserver 8
""",
    },
}


def fail(message):
    sys.exit(f"generate.py: {message}")


def run(*args):
    result = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
    if result.returncode != 0:
        fail(f"{' '.join(args)} ended with status {result.returncode}")
    return result.stdout.decode()


def parse_help(text):
    """The lines before the first flag, the flags: (name, value or None, description), and the lines behind the last."""
    intro, flags, rest, current = [], [], [], None
    for line in text.splitlines():
        flag, continued = FLAG.match(line), CONTINUED.match(line)
        if flag:
            current = [flag[1].removeprefix("--"), flag[2], flag[3] or ""]
            flags.append(current)
            rest = []
        elif current and continued:
            current[2] = f"{current[2]} {continued[1]}".strip()
        else:
            current = None
            (rest if flags else intro).append(line)
    if not flags:
        fail("the help text lists no flags")
    return intro, [tuple(flag) for flag in flags], rest


def commands_of(program):
    return json.loads(run(program, "help", "--json"))


def default_of(description):
    """What stands in brackets at the end: "… [1GiB]"."""
    found = re.search(r"\[([^\[\]]*)\]$", description)
    return found[1] if found else ""


def wrapped(text, width):
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return lines + [line]


def flagfile(program, head):
    with open(head, encoding="utf-8") as file:
        text = file.read()
    for name, value, description in parse_help(run(program, "--help"))[1]:
        if name in ("help", "version", "flagfile"):
            continue
        default = default_of(description)
        # A default that is not a value ("none: who …") leaves it to the reader.
        example = default if re.fullmatch(r"[^ ]+", default) and value else ""
        text += "\n" + "".join(f"# {line}\n" for line in wrapped(description, 110))
        text += f"#--{name}" + (f"={example}" if value else "") + "\n"
    return text


def roff(text):
    """As text of mdoc: no request and no escape in it."""
    text = text.replace("\\", "\\e").replace("…", "...").replace("µ", "u")
    return re.sub(r"^([.'])", r"\\&\1", text.replace("-", r"\-"))


def sentences(text):
    """A new line for each sentence, and short ones, as mdoc wants it."""
    parts = re.split(r"(?<=[.;]) (?=[A-Za-z])", text)
    return "\n".join(roff(line) for part in parts if part for line in wrapped(part, TEXT_COLUMNS))


def flag_items(flags):
    items = [".Bl -tag -width Ds"]
    for name, value, description in flags:
        dashed = name.replace("-", r"\-")
        if name.startswith("-"):
            items.append(f".It Fl {name[1:]} Ar {value}")
        else:
            items.append(rf".It Fl \-{dashed}" + (f" Ns = Ns Ar {value}" if value else ""))
        items.append(sentences(description))
    return "\n".join(items + [".El"])


def exit_status(text):
    found = EXIT_STATUS.search(text)
    if not found:
        fail("the help text does not tell the exit statuses")
    items = [".Bl -tag -width Ds"]
    for number, meaning in re.findall(r"(\d) ([^;]+)", " ".join(found[1].split()).split(". ")[0]):
        items += [f".It {number}", sentences(meaning.strip().rstrip("."))]
    return "\n".join(items + [".El"])


def notes(lines):
    """What the help text says behind the flags, as it stands there; but for the exit statuses."""
    text = EXIT_STATUS.sub("", "\n".join(lines)).strip("\n")
    if not text:
        return ""
    return "\n".join([".Sh NOTES", ".Bd -literal", *(roff(line) for line in text.splitlines()), ".Ed"])


def man(name, program, version, date):
    page = PAGES.get(name) or fail(f"no page of {name} is known")
    text = run(program, "--help")
    intro, flags, rest = parse_help(text)
    # "usage: NAME …", and other forms below it; then the first paragraph, up to a list.
    behind = next((i for i, line in enumerate(intro) if i > 0 and not line.startswith("  ")), len(intro))
    usage = [line.split(name, 1)[1].strip() for line in intro[:behind] if name in line]
    told = []
    for line in intro[behind:]:
        if line.startswith("  ") or line.rstrip().endswith(":"):
            break
        told.append(line.strip())
    lines = [
        f".Dd {date}",
        f".Dt {name.upper()} {page['section']}",
        f".Os Osprey {version}",
        ".Sh NAME",
        f".Nm {name}",
        f".Nd {page['line']}",
        ".Sh SYNOPSIS",
        "\n".join(".Nm\n" + roff(re.sub(r"   +", "   ", form)) for form in usage),
        ".Sh DESCRIPTION",
        sentences(" ".join(told).strip()) or f"The program\n.Nm\nof Osprey: {page['line']}.",
    ]
    if name == "kvcli":
        lines += [".Sh COMMANDS", ".Bl -tag -width Ds"]
        for command in commands_of(program):
            arguments = command["arguments"]
            lines.append(f".It Cm {command['command']}" + (f" Ar {roff(arguments)}" if arguments else ""))
            lines.append(sentences(command["summary"]))
        lines.append(".El")
    lines += [".Sh OPTIONS", flag_items(flags), notes(rest), page["before"].strip()]
    lines += [".Sh EXIT STATUS", exit_status(text), page["after"].strip()]
    return "\n".join(line for line in lines if line) + "\n"


COMPLETION = r"""# bash completion of @NAME@. Made by tools/packaging/generate.py.

_osprey_@NAME@() {
  local current=${COMP_WORDS[COMP_CWORD]} commands='@COMMANDS@' word
  COMPREPLY=()
  # readline takes = for the end of a word.
  if [[ $current == = || ${COMP_WORDS[COMP_CWORD - 1]} == = ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "${current#=}")
    return
  fi
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W '@FLAGS@' -- "$current")
    if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2> /dev/null; fi
    return
  fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    # A command is there already: what follows is its own, or help's.
    if [[ $word != help && " $commands " == *" $word "* ]]; then return; fi
  done
  mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
}
complete -F _osprey_@NAME@ @NAME@
"""


def completion(name, program):
    _, flags, _ = parse_help(run(program, "--help"))
    commands = [command["command"] for command in commands_of(program)] if name == "kvcli" else []
    names = [flag if flag[0] == "-" else f"--{flag}" + ("=" if value else "") for flag, value, _ in flags]
    if "--self-test=" in names:
        names.append("--self-test")  # stands with a value and without
    text = COMPLETION.replace("@NAME@", name).replace("@COMMANDS@", " ".join(commands))
    return text.replace("@FLAGS@", " ".join(names))


def main(args):
    makers = {"flagfile": (flagfile, 2), "man": (man, 4), "completion": (completion, 2)}
    if not args or args[0] not in makers or len(args) - 1 != makers[args[0]][1]:
        sys.exit(__doc__)
    sys.stdout.write(makers[args[0]][0](*args[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
