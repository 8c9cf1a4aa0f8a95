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
FLAG = re.compile(r"^  (--[a-z][a-z0-9-]*|-[a-zA-Z](?= ))(?:[= ]([^\s-]\S*)(?=\s|$))?(?:\s+(\S.*))?$")
# Up to an empty line.
EXIT_STATUS = re.compile(r"^exit status: ((?:.+\n?)+)", re.IGNORECASE | re.MULTILINE)
CONTINUED = re.compile(r"^ {8,}(\S.*)$")

# A list that goes on, up to .El.
OSPREY_SERVER = r"""
.Sh ENVIRONMENT
.Bl -tag -width Ds
.It Ev OSPREY_SERVER
The server where
.Fl \-server
is not given; with neither, the service of this host at
.Pa /run/osprey/osprey.sock .
"""

SHELL = r"""
.Sh SHELL
On a terminal, without a command,
.Nm
is a shell: a command a line, without
.Nm
before it, with its flags before or behind it.
Words are quoted as
.Qq a b\en\ex00
or
.Ql 'a b' ;
lines that begin with # are comments.
Tab completes commands and flags, the arrows step through the history, and Ctrl\-R searches it.
Ctrl\-C drops the line, or ends a running command; Ctrl\-D,
.Ic exit
and
.Ic quit
end the shell.
Errors do not end it.
After a restart of the server the shell connects again, and reports that.
.Pp
Lines of a pipe are commands, too: their results are bare, and the exit status is the highest of theirs.
""" + OSPREY_SERVER.lstrip() + r""".It Ev OSPREY_HISTORY
The file of the shell's history; empty: none is kept.
.El
.Sh FILES
.Bl -tag -width Ds
.It Pa ~/.osprey_history
The history, where OSPREY_HISTORY is not set.
Its owner alone can read it.
.It Pa FILE.part , FILE.part.state
What an interrupted export has written, and where it continues.
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
The socket at which the installed service accepts clients of this host.
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
.Xr kvbench 1 ,
.Xr kvcli 1
""",
    },
    "kvcli": {
        "section": 1,
        "line": "commands on an Osprey server, and a doctor for RDMA",
        "about": "Stores, reads and deletes keys of an Osprey server, measures it, and exports and imports its keys. "
                 "A GET is an RDMA READ of the server's memory. "
                 "On a terminal results include their cost; piped, they are bare, and a single get "
                 "writes exactly the value's bytes; with --json they are objects, a line each.",
        "before": SHELL,
        "after": r"""
.Sh EXAMPLES
.Dl kvcli put planet saturn
.Dl kvcli --server=rdma://10.0.0.7 get planet
.Dl kvcli doctor --memory=4GiB
.Dl printf 'put sun sol\enincr visits 5\en' | kvcli
.Dl kvcli export backup.jsonl && kvcli import backup.jsonl --if-absent
.Sh SEE ALSO
.Xr kvbench 1 ,
.Xr kvserver 8
""",
    },
    "kvbench": {
        "section": 1,
        "line": "measures an Osprey server with the YCSB workloads",
        "before": OSPREY_SERVER + ".El\n",
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
        if flag and rest:
            fail(f"a line of the help text is neither a flag nor goes on with one: {rest[0]}")
        if flag:
            current = [flag[1].removeprefix("--"), flag[2], flag[3] or ""]
            flags.append(current)
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
        if name in ("help", "version", "flagfile", "memory-for"):
            continue
        default = default_of(description)
        # A default that is not a value ("none: …") gives no example.
        example = default if re.fullmatch(r"[^ ]+", default) and value else ""
        told = f"{value}: {description}" if value and "|" in value else description
        text += "\n" + "".join(f"# {line}\n" for line in wrapped(told, 110))
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
        sentences(" ".join(told).strip() or page.get("about") or fail(f"nothing is said of {name}")),
    ]
    if name == "kvcli":
        lines += [".Sh COMMANDS", ".Bl -tag -width Ds"]
        for command in commands_of(program):
            arguments = command["arguments"]
            lines.append(f".It Cm {command['command']}" + (f" Ar {roff(arguments)}" if arguments else ""))
            lines.append(sentences(command["summary"]))
            if command["flags"]:
                lines.append(".br\nFlags: " + ", ".join(f"\\fB{roff(flag)}\\fR" for flag in command["flags"]))
            lines.append(f".Dl {roff(command['example'])}")
        lines.append(".El")
    lines += [".Sh OPTIONS", flag_items(flags), notes(rest), page["before"].strip()]
    lines += [".Sh EXIT STATUS", exit_status(text)]
    # Those of the help text, and those that it has no room for.
    examples = [line.strip() for line in intro[behind:] if line.startswith(f"  {name} ")]
    if examples:
        lines += [".Sh EXAMPLES", *(f".Dl {roff(example)}" for example in examples)]
    lines.append(page["after"].strip())
    return "\n".join(line for line in lines if line) + "\n"


COMPLETION = r"""# bash completion of @NAME@. Made by tools/packaging/generate.py.

_osprey_@NAME@() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' flag='' word i
  # What takes a value, and of which there are a few; each command's flags; the commands whose arguments are files.
  local takes=' @TAKES@ ' commands='@COMMANDS@' files=' @FILES@ ' common='@COMMON@' all='@ALL@'
  local -A values=(@VALUES@) flags=(@FLAGS@)
  COMPREPLY=()

  # readline takes = for the end of a word: --flag = value.
  if [[ $current == = ]]; then
    flag=$previous current=''
  elif [[ $previous == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $takes == *" $previous "* ]]; then
    flag=$previous
  fi
  if [[ -n $flag ]]; then
    # Without such a list readline offers files.
    if [[ -n ${values[$flag]-} ]]; then
      mapfile -t COMPREPLY < <(compgen -W "${values[$flag]}" -- "$current")
      if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2> /dev/null; fi
    fi
    return
  fi

  # The command: the first word that is neither a flag nor a flag's value.
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then
      ((++i))
    elif [[ $word == -* ]]; then
      if [[ $takes == *" $word "* && ${COMP_WORDS[i + 1]} != = ]]; then ((++i)); fi
    elif [[ " $commands " == *" ${word,,} "* ]]; then
      command=${word,,}
      break
    fi
  done
  if [[ $current == -* ]]; then
    word=$all
    if [[ -n $command ]]; then word="$common ${flags[$command]-}"; fi
    mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
    if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2> /dev/null; fi
    return
  fi
  # A value as @FILE: two words to bash, and one to readline.
  if [[ $current == @* || $previous == @ ]]; then
    mapfile -t COMPREPLY < <(compgen -f -P @ -- "${current#@}")
    return
  fi
  # A part of an address.
  if [[ $previous == : ]]; then return; fi
  if [[ -z $command || ${previous,,} == help ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  fi
  if [[ $files != *" $command "* ]]; then compopt +o default +o bashdefault 2> /dev/null; fi
}
complete -o bashdefault -o default -F _osprey_@NAME@ @NAME@
"""

# "name=one|two", and "name" alone, as the help text lists the properties of kvbench.
PROPERTY = re.compile(r"^([a-z][a-z.]*)(?:=(\S+))?$")


def properties_of(rest):
    """Of kvbench: (name, values or None), from the indented lines behind its flags."""
    words = [word for line in rest if line.startswith("  ") for word in line.split()]
    return [PROPERTY.match(word).groups() for word in words]


def typed(name, value):
    """As one types it: with = where a value belongs behind it."""
    dashed = name if name.startswith("-") else f"--{name}"
    return dashed + ("=" if value and dashed.startswith("--") else "")


def bash_map(pairs):
    return " ".join(f"[{key}]='{' '.join(words)}'" for key, words in pairs if words)


def completion(name, program):
    intro, flags, rest = parse_help(run(program, "--help"))
    names = [typed(flag, value) for flag, value, _ in flags]
    takes = [typed(flag, value).rstrip("=") for flag, value, _ in flags if value]
    values = {f"--{flag}": value.split("|") for flag, value, _ in flags if value and "|" in value}
    commands, files = {}, []
    if name == "kvcli":
        for command in commands_of(program):
            own = [flag.split("=")[0] + ("=" if "=" in flag else "") for flag in command["flags"]]
            commands[command["command"]] = own + (["--self-test"] if "--self-test=" in own else [])
            if re.search(r"\b(FILE|DIR|FROM)\b", command["arguments"]):
                files.append(command["command"])
        values["--self-test"] = ["serve"]
        names.append("--self-test")  # stands with a value and without
    if name == "kvbench":
        for form in (line.split(f"{name} ", 1)[1] for line in intro if "usage:" in line or line.startswith("       ")):
            own = names if "[FLAGS]" in form else re.findall(r"(--[a-z-]+=?)", form)
            for command in form.split()[0].split("|"):
                commands[command] = own
            if ".json " in form:
                files.append(command)
        for prop, choices in properties_of(rest):
            values.setdefault("-p", []).append(f"{prop}=")
            if choices and "|" in choices:
                values[prop] = choices.split("|")
    own = {flag for flags in commands.values() for flag in flags}
    text = COMPLETION
    for mark, made in {"NAME": name, "COMMANDS": " ".join(commands), "TAKES": " ".join(takes), "FILES": " ".join(files),
                       "ALL": " ".join(names), "COMMON": " ".join(flag for flag in names if flag not in own and flag[2:] not in commands),
                       "VALUES": bash_map(values.items()), "FLAGS": bash_map(commands.items())}.items():
        text = text.replace(f"@{mark}@", made)
    return text


def main(args):
    makers = {"flagfile": (flagfile, 2), "man": (man, 4), "completion": (completion, 2)}
    if not args or args[0] not in makers or len(args) - 1 != makers[args[0]][1]:
        sys.exit(__doc__)
    sys.stdout.write(makers[args[0]][0](*args[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
