# SPDX-License-Identifier: Apache-2.0
"""The names of a test cluster: NAME.NAMESPACE.svc.cluster.local is the address of a Service, or those of its pods where it has none. Every other name does not exist.

    dns.py KUBECONFIG ADDRESS
"""
import json
import pathlib
import socket
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from kubernetes import api  # noqa: E402

SUFFIX = ".svc.cluster.local"
NAME_ERROR, NO_ERROR = 3, 0


def addresses(client, name):
    """None when there is no such name."""
    parts = name.lower().removesuffix(SUFFIX).split(".")
    if not name.lower().endswith(SUFFIX) or len(parts) != 2:
        return None
    answer = client.request("GET", f"/api/v1/namespaces/{parts[1]}/services/{parts[0]}")
    if answer.status != 200:
        return None
    address = answer.json["spec"].get("clusterIP", "None")
    if address != "None":
        return [address]
    slices = client.request("GET", f"/apis/discovery.k8s.io/v1/namespaces/{parts[1]}/endpointslices?labelSelector=kubernetes.io/service-name%3D{parts[0]}").json
    return [one for item in slices["items"] for end in item["endpoints"] or [] if end["conditions"].get("ready") for one in end["addresses"]]


def question(packet):
    """The name, where the question ends, and the type."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode("ascii", "replace"))
        at += 1 + packet[at]
    kind, = struct.unpack_from(">H", packet, at + 1)
    return ".".join(labels), at + 5, kind


def answer(client, packet):
    name, end, kind = question(packet)
    found = addresses(client, name)
    records = found or [] if kind == 1 else []
    head = packet[:2] + struct.pack(">HHHHH", 0x8580 | (NAME_ERROR if found is None else NO_ERROR), 1, len(records), 0, 0)
    rows = b"".join(struct.pack(">HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(one) for one in records)
    return head + packet[12:end] + rows


def main():
    client = api.Api(json.loads(open(sys.argv[1]).read()))
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[2], 53))
    while True:
        packet, peer = server.recvfrom(2048)
        try:
            server.sendto(answer(client, packet), peer)
        except (OSError, IndexError, KeyError, struct.error) as problem:
            print(f"{peer}: {problem!r}", flush=True)


if __name__ == "__main__":
    main()
