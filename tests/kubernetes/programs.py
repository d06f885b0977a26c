# SPDX-License-Identifier: Apache-2.0
"""The programs of a cluster, from package registries: the servers are compiled from Go modules, etcd comes from Debian.

Everything is kept in a cache below the version's name: the first build takes some ten minutes of processor time, the next start none.
"""
import fcntl
import os
import pathlib
import shutil
import subprocess

VERSION = "1.34.11"
HELM = "3.19.0"
AGENT_SANDBOX = "0.5.6"
CONTAINERD, RUNC = "2.1.4", "1.2.6"  # newer than Debian's, for pods with user namespaces
ETCD_PACKAGE = "etcd-server"
CNI = pathlib.Path("/usr/lib/cni")
SOURCE = pathlib.Path(__file__).resolve().parent / "servers"
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
FROM_HOST = ("go", "ctr", "ip", "iptables", "unshare", "nsenter", "mount", "openssl", "dpkg", "gcc", "kubectl")

# The modules that Kubernetes keeps in folders of its own, which do not count for whoever imports it.
STAGING = """api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap code-generator
component-base component-helpers controller-manager cri-api cri-client csi-translation-lib dynamic-resource-allocation endpointslice externaljwt
kms kube-aggregator kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission
sample-apiserver""".split()


def missing():
    """Why no cluster can run here, or None."""
    if os.geteuid() != 0:
        return "a cluster is started as root"
    for program in FROM_HOST:
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/local/go/bin:/usr/sbin:/sbin"):
            return f"{program} is not installed"
    if not (CNI / "bridge").exists():
        return "the package containernetworking-plugins is not installed"
    if not pathlib.Path("/sys/fs/cgroup/memory").is_dir():
        return "the rig knows control groups of version 1 only"
    return None


def cache():
    above = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "/tmp") + "/.cache"
    path = pathlib.Path(os.environ.get("SANDGLASS_CACHE") or f"{above}/sandglass") / "kubernetes" / f"v{VERSION}"
    path.mkdir(parents=True, exist_ok=True)
    return path


def ensure(say=print):
    """The directory with all programs; makes it at first use, by one process."""
    directory = cache()
    programs = directory / "bin"
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        programs.mkdir(exist_ok=True)
        if not (directory / "servers").exists():
            say(f"building the servers of Kubernetes v{VERSION}: about ten minutes of processor time, once")
            build_servers(directory)
        for name in SERVERS:
            link = programs / name
            if not link.is_symlink():
                link.symlink_to("../servers")
        build_runtime(directory, programs, say)
        if not (programs / "etcd").exists():
            fetch_etcd(directory, programs)
    return programs


def module_file():
    minor = VERSION.split(".", 1)[1]
    lines = ["module rig/kubernetes", "", "go 1.25.0", "", f"require k8s.io/kubernetes v{VERSION}", "", "replace ("]
    return "\n".join([*lines, *(f"\tk8s.io/{name} => k8s.io/{name} v0.{minor}" for name in STAGING), ")", ""])


def build_servers(directory):
    """One program that is all of them, by the name it is called: one link instead of five. Not asked: the checksum database, which is not
    reachable behind every proxy; what is compiled runs in tests only."""
    module = directory / "module"
    module.mkdir(exist_ok=True)
    if not (module / "go.mod").exists():
        (module / "go.mod").write_text(module_file())
    shutil.copy(SOURCE / "main.go", module)
    major, minor, _ = VERSION.split(".")
    version = "k8s.io/component-base/version"
    flags = f"-s -w -X {version}.gitVersion=v{VERSION} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    go_build(module, directory / "build.log", directory / "servers", ".", flags)


def go_build(module, log_path, result, package, flags, options=(), cgo=False):
    part = result.with_suffix(".part")
    environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "1" if cgo else "0", "GOTOOLCHAIN": "local", "GOSUMDB": "off",
                   "PATH": os.environ["PATH"] + ":/usr/local/go/bin"}
    with open(log_path, "w") as log:
        done = subprocess.run(["nice", "go", "build", "-p", "2", "-ldflags", flags, *options, "-o", part, package], cwd=module, env=environment,
                              stdout=log, stderr=log, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{result.name} cannot be built: {log_path}\n{log_path.read_text()[-3000:]}")
    part.rename(result)


def build_runtime(directory, programs, say):
    """containerd with its shim, and runc, which needs the C compiler and libseccomp."""
    for name, module, version, package, options in (
            ("runc", "github.com/opencontainers/runc", RUNC, "", ["-tags", "seccomp"]),
            ("containerd", "github.com/containerd/containerd/v2", CONTAINERD, "/cmd/containerd", ["-tags", "no_btrfs no_zfs no_devmapper"]),
            ("containerd-shim-runc-v2", "github.com/containerd/containerd/v2", CONTAINERD, "/cmd/containerd-shim-runc-v2", [])):
        if (programs / name).exists():
            continue
        say(f"building {name} {version}")
        place = directory / f"module-{name}"
        place.mkdir(exist_ok=True)
        (place / "go.mod").write_text(f"module rig/{name}\n\ngo 1.25.0\n\nrequire {module} v{version}\n")
        go_build(place, directory / f"build-{name}.log", programs / name, module + package, "-s -w", options, cgo=name == "runc")


def helm(say=print):
    """Only for the test of the chart: built at its first use."""
    with open(cache() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program, module = cache() / "bin" / "helm", cache() / "module-helm"
        if not program.exists():
            say(f"building helm {HELM}")
            module.mkdir(exist_ok=True)
            (module / "go.mod").write_text(f"module rig/helm\n\ngo 1.25.0\n\nrequire helm.sh/helm/v3 v{HELM}\n")
            go_build(module, cache() / "build-helm.log", program, "helm.sh/helm/v3/cmd/helm", "-s -w")
    return program


def agent_sandbox(say=print):
    """The controller of agent-sandbox, built at its first use, and the directory with the descriptions of its resources."""
    with open(cache() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program, module = cache() / "bin" / f"agent-sandbox-{AGENT_SANDBOX}", cache() / "module-agent-sandbox"
        if not program.exists() or not (module / "crds").exists():
            say(f"building agent-sandbox {AGENT_SANDBOX}")
            name = "sigs.k8s.io/agent-sandbox"
            module.mkdir(exist_ok=True)
            program.parent.mkdir(exist_ok=True)
            (module / "go.mod").write_text(f"module rig/agent-sandbox\n\ngo 1.26.0\n\nrequire {name} v{AGENT_SANDBOX}\n")
            go_build(module, cache() / "build-agent-sandbox.log", program, name + "/cmd/agent-sandbox-controller", "-s -w")
            place = subprocess.run(["go", "list", "-mod=mod", "-m", "-f", "{{.Dir}}", name], cwd=module, capture_output=True, check=True, text=True,
                                   env={**os.environ, "GOSUMDB": "off", "GOTOOLCHAIN": "local", "PATH": os.environ["PATH"] + ":/usr/local/go/bin"}).stdout.strip()
            shutil.copytree(f"{place}/k8s/crds", module / "crds", copy_function=shutil.copyfile, dirs_exist_ok=True)
    return program, module / "crds"


def fetch_etcd(directory, programs):
    """Out of Debian's package without its installation, which would start a server."""
    place = directory / "etcd"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    subprocess.run(["apt-get", "download", ETCD_PACKAGE], cwd=place, capture_output=True, check=True)
    subprocess.run(["dpkg", "-x", next(place.glob("*.deb")), place], check=True)
    shutil.copy(place / "usr/bin/etcd", programs / "etcd.part")
    (programs / "etcd.part").rename(programs / "etcd")
    shutil.rmtree(place)
