# SPDX-License-Identifier: Apache-2.0
"""What the servers of a cluster read: certificates, kubeconfigs, settings, command lines."""
import base64
import json
import pathlib
import secrets
import subprocess

NODE = "node1"
API_PORT, KUBELET_PORT = 6443, 10250
# Who talks to the API server: name of the kubeconfig -> subject of the certificate
CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE}",
}


class Plan:
    """Addresses and places of one cluster; `number` tells it from the others on this host."""

    def __init__(self, directory, number, programs):
        self.directory, self.number, self.programs = pathlib.Path(directory), number, pathlib.Path(programs)
        self.host_address, self.node_address = f"10.213.{number}.1", f"10.213.{number}.2"
        self.pods, self.pod_gateway = f"10.214.{number}.0/24", f"10.214.{number}.1"
        self.services, self.api_service = f"10.215.{number}.0/24", f"10.215.{number}.1"
        self.link = f"sgk{number}"
        self.cgroup = f"sgk-{number}"
        self.certificates = self.directory / "pki"
        self.logs = self.directory / "logs"
        self.containerd_socket = self.directory / "containerd.sock"
        self.url = f"https://{self.node_address}:{API_PORT}"

    def write(self):
        self.logs.mkdir(exist_ok=True)
        make_certificates(self)
        for name in CLIENTS:
            write_kubeconfig(self, name)
        for name, content in files(self).items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))


def openssl(*arguments, directory):
    subprocess.run(["openssl", *map(str, arguments)], cwd=directory, capture_output=True, check=True)


def make_certificates(plan):
    place = plan.certificates
    place.mkdir(mode=0o700, exist_ok=True)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 3650, "-subj", "/CN=test-cluster", "-keyout", "ca.key", "-out",
            "ca.crt", directory=place)
    openssl("genrsa", "-out", "sa.key", 2048, directory=place)
    openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub", directory=place)
    names = ["DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc", "DNS:kubernetes.default.svc.cluster.local", "DNS:localhost",
             "IP:127.0.0.1", f"IP:{plan.node_address}", f"IP:{plan.api_service}"]
    sign(place, "apiserver", "/CN=kube-apiserver", ",".join(names))
    sign(place, "kubelet-server", f"/CN={NODE}", f"DNS:{NODE},IP:{plan.node_address}")
    sign(place, "apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet")
    for name, subject in CLIENTS.items():
        sign(place, name, subject)


def sign(place, name, subject, alternatives=None):
    extra = "keyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n" + (f"subjectAltName={alternatives}\n" if alternatives else "")
    (place / f"{name}.ext").write_text(extra)
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr", directory=place)
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", 3650, "-extfile", f"{name}.ext",
            "-out", f"{name}.crt", directory=place)


def kubeconfig(plan, user):
    encoded = base64.b64encode((plan.certificates / "ca.crt").read_bytes()).decode()
    return {"apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": plan.url, "certificate-authority-data": encoded}}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}]}


def write_kubeconfig(plan, name):
    data = {f"client-{kind}-data": base64.b64encode((plan.certificates / f"{name}.{end}").read_bytes()).decode() for kind, end in (("certificate", "crt"), ("key", "key"))}
    path = plan.directory / f"{name}.conf"
    path.write_text(json.dumps(kubeconfig(plan, data), indent=1))
    path.chmod(0o600)


def files(plan):
    """JSON is YAML."""
    return {
        "kubelet.yaml": {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{plan.containerd_socket}", "cgroupDriver": "cgroupfs", "failSwapOn": False, "failCgroupV1": False,
            "enforceNodeAllocatable": ["pods"], "evictionHard": {"memory.available": "100Mi"}, "address": plan.node_address, "port": KUBELET_PORT,
            "healthzBindAddress": "127.0.0.1", "readOnlyPort": 0, "clusterDNS": [plan.node_address], "clusterDomain": "cluster.local",
            "resolvConf": str(plan.directory / "resolv.conf"), "tlsCertFile": str(plan.certificates / "kubelet-server.crt"),
            "tlsPrivateKeyFile": str(plan.certificates / "kubelet-server.key"),
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": str(plan.certificates / "ca.crt")}},
            "authorization": {"mode": "Webhook"}, "podLogsDir": str(plan.directory / "pod-logs"), "registerNode": True, "maxPods": 250,
            "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99, "nodeStatusUpdateFrequency": "4s", "serializeImagePulls": False,
            "volumeStatsAggPeriod": "10s", "evictionPressureTransitionPeriod": "5s", "registryPullQPS": 0, "eventRecordQPS": 0},
        "kube-proxy.yaml": {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables", "clusterCIDR": plan.pods,
            "clientConnection": {"kubeconfig": str(plan.directory / "kube-proxy.conf")}, "hostnameOverride": NODE, "bindAddress": plan.node_address,
            "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249", "conntrack": {"maxPerCore": 0, "min": 0}},
        "net.d/10-bridge.conflist": {
            "cniVersion": "1.0.0", "name": "pods", "plugins": [
                {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipMasq": False,
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": plan.pods}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": str(plan.directory / "addresses")}},
                {"type": "loopback"}]},
        "containerd.toml": containerd(plan),
        "resolv.conf": f"nameserver {plan.node_address}\n",
        "tokens.csv": f"{secrets.token_hex(16)},admin,admin,system:masters\n",
    }


def containerd(plan):
    return f"""version = 2
root = "{plan.directory}/containerd"
state = "{plan.directory}/containerd-state"
[grpc]
  address = "{plan.containerd_socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  max_container_log_line_size = 65536
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{plan.directory}/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{plan.programs}/runc"
"""


def commands(plan):
    """Command line of each process, in the order of their start."""
    keys, place = plan.certificates, plan.directory
    return {
        "etcd": [f"{plan.programs}/etcd", f"--data-dir={place}/etcd", "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
                 "--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=default=http://127.0.0.1:2380",
                 "--unsafe-no-fsync"],
        "containerd": [f"{plan.programs}/containerd", "--config", f"{place}/containerd.toml"],
        "kube-apiserver": [
            f"{plan.programs}/kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--secure-port={API_PORT}", "--bind-address=0.0.0.0",
            f"--advertise-address={plan.node_address}", f"--tls-cert-file={keys}/apiserver.crt", f"--tls-private-key-file={keys}/apiserver.key",
            f"--client-ca-file={keys}/ca.crt", "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={keys}/sa.pub",
            f"--service-account-signing-key-file={keys}/sa.key", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={plan.services}", "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={keys}/apiserver-kubelet.crt", f"--kubelet-client-key={keys}/apiserver-kubelet.key",
            f"--kubelet-certificate-authority={keys}/ca.crt", f"--cert-dir={place}/apiserver", "--token-auth-file=" + str(place / "tokens.csv")],
        "kube-controller-manager": [
            f"{plan.programs}/kube-controller-manager", f"--kubeconfig={place}/kube-controller-manager.conf", f"--service-account-private-key-file={keys}/sa.key",
            f"--root-ca-file={keys}/ca.crt", "--use-service-account-credentials=true", "--leader-elect=false", "--node-monitor-grace-period=16s",
            "--node-monitor-period=2s", "--bind-address=127.0.0.1", f"--cert-dir={place}/kcm"],
        "kube-scheduler": [f"{plan.programs}/kube-scheduler", f"--kubeconfig={place}/kube-scheduler.conf", "--leader-elect=false", "--bind-address=127.0.0.1",
                           f"--cert-dir={place}/scheduler"],
        "kubelet": [f"{plan.programs}/kubelet", f"--config={place}/kubelet.yaml", f"--kubeconfig={place}/kubelet.conf", f"--hostname-override={NODE}",
                    f"--root-dir={place}/kubelet", f"--cert-dir={place}/kubelet-pki", f"--node-ip={plan.node_address}"],
        "kube-proxy": [f"{plan.programs}/kube-proxy", f"--config={place}/kube-proxy.yaml"],
        "dns": ["/usr/bin/python3", str(pathlib.Path(__file__).resolve().parent / "dns.py"), str(place / "admin.conf"), plan.node_address],
    }
