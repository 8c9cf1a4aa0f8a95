#!/usr/bin/python3 -IB
"""The files for containers. Prints a line a case.

The commands of compose.yaml are run as they are, but for the names of etcd and of the folder of sockets: a cluster serves, and loses a
server. Of kubernetes.yaml the names, ports and flags must agree. No image is built here: that needs Debian's mirrors.
"""

import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "tools" / "packaging" / "container"
AWAIT_S_MAX = 120
PROGRAMS = {"kvserver": "bazel-bin/server/kvserver", "kvcli": "bazel-bin/tools/kvcli"}


class Failed(Exception):
    pass


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def flags_of_kvserver():
    said = subprocess.run([PROGRAMS["kvserver"], "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (--[a-z-]+)", said, re.MULTILINE))


class Cluster:
    """The services of compose.yaml as processes of this machine, which end with the block."""

    def __init__(self, directory):
        self._services = yaml.safe_load((FILES / "compose.yaml").read_text(encoding="utf-8"))["services"]
        self._directory = directory
        self._port = free_port()
        self._processes = {}
        programs = pathlib.Path(directory) / "bin"
        programs.mkdir()
        for name, path in PROGRAMS.items():
            (programs / name).symlink_to(ROOT / path)
        # kvserver and etcd look at no other variable.
        self._environment = {"PATH": f"{programs}:/usr/bin:/bin", "OSPREY_SERVER": self._here(self._services["a"]["environment"]["OSPREY_SERVER"])}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _here(self, text):
        return text.replace("etcd://etcd:2379", f"etcd://127.0.0.1:{self._port}").replace("/run/osprey", self._directory)

    def start_etcd(self):
        image = re.search(r'CMD (\["etcd".*?\])', (FILES / "Dockerfile").read_text(encoding="utf-8"), re.DOTALL).group(1)
        command = yaml.safe_load(image.replace("\\\n", ""))
        command = [word.replace("/var/lib/etcd", f"{self._directory}/etcd").replace("0.0.0.0:2379", f"127.0.0.1:{self._port}") for word in command]
        peers = f"http://127.0.0.1:{free_port()}"
        self._start("etcd", [*command, f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}"])

    def start(self, service):
        self._start(service, [self._here(word) for word in self._services[service]["command"]])

    def _start(self, name, command):
        with open(f"{self._directory}/{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(command, env=self._environment, cwd=self._directory, stdout=log, stderr=log)

    def wait(self, service):
        return self._processes[service].wait(AWAIT_S_MAX)

    def kill(self, service):
        self._processes[service].kill()

    def kvcli(self, *words):
        run = subprocess.run([PROGRAMS["kvcli"], *words], env=self._environment, capture_output=True, text=True, timeout=AWAIT_S_MAX, check=False)
        if run.returncode != 0:
            raise Failed(f"kvcli {shlex.join(words)}: {run.stderr}")
        return run.stdout.strip()

    def status(self):
        return self.kvcli("cluster", "status", f"etcd://127.0.0.1:{self._port}/main")

    def await_status(self, text):
        deadline = time.monotonic() + AWAIT_S_MAX
        while text not in self.status():
            if time.monotonic() > deadline:
                raise Failed(f"'{text}' is not in\n{self.status()}")
            time.sleep(0.2)


def the_services_of_compose_are_a_cluster_that_loses_a_server():
    with tempfile.TemporaryDirectory(prefix="osprey-container.") as directory, Cluster(directory) as cluster:
        cluster.start_etcd()
        for _ in range(2):  # a second `up` changes nothing
            cluster.start("create")
            assert cluster.wait("create") == 0
        for server in "abc":
            cluster.start(server)
        cluster.await_status("missing=0")
        cluster.kvcli("put", "planet", "saturn", "--await-server")
        primary = re.search(r"primary=([abc])", cluster.status()).group(1)
        cluster.kill(primary)
        assert cluster.kvcli("get", "planet", "--await-server", "--timeout=60") == "saturn"


def servers_of_compose_differ_in_nothing_but_their_names():
    services = yaml.safe_load((FILES / "compose.yaml").read_text(encoding="utf-8"))["services"]
    commands = {name: " ".join(services[name]["command"]) for name in "abc"}
    for name, command in commands.items():
        assert re.sub(rf"=a\b|/a\.", lambda match, name=name: match.group().replace("a", name), commands["a"]) == command, command
        assert services[name]["image"] == "osprey" and services[name]["volumes"] == ["sockets:/run/osprey"]


def kubernetes_names_ports_and_flags_that_there_are():
    documents = {one["kind"]: one for one in yaml.safe_load_all((FILES / "kubernetes.yaml").read_text(encoding="utf-8"))}
    assert set(documents) == {"Service", "PodDisruptionBudget", "StatefulSet"}
    spec = documents["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == documents["Service"]["spec"]["selector"]
    assert documents["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert spec["serviceName"] == documents["Service"]["metadata"]["name"]
    pod = spec["template"]["spec"]
    server = pod["containers"][0]
    script = server["command"][2]
    assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0
    flags = set(re.findall(r"--[a-z-]+", script))
    assert flags <= flags_of_kvserver(), flags - flags_of_kvserver()
    port = documents["Service"]["spec"]["ports"][0]["port"]
    assert f'--metrics="$NODE_IP:{port}"' in script and server["readinessProbe"]["httpGet"]["port"] == port
    volumes = {one["name"] for one in pod["volumes"]}
    assert volumes == {one["name"] for one in server["volumeMounts"]}
    assert set(re.findall(r"\$([A-Z_]+)", script)) == {one["name"] for one in server["env"]}


def main():
    os.chdir(ROOT)
    failed = False
    for case in (the_services_of_compose_are_a_cluster_that_loses_a_server, servers_of_compose_differ_in_nothing_but_their_names,
                 kubernetes_names_ports_and_flags_that_there_are):
        name = "containers: " + case.__name__.replace("_", " ")
        try:
            case()
            print(f"ok - {name}", flush=True)
        except (AssertionError, Failed, KeyError, OSError, subprocess.SubprocessError) as error:
            print(f"{type(error).__name__}: {error}\nnot ok - {name}", flush=True)
            failed = True
    sys.exit(1 if failed else 0)


main()
