# SPDX-License-Identifier: Apache-2.0
"""The objects of an API server that is played: versions, events for watches, and the words in which a real one refuses."""
import copy
import datetime
import json
import threading
import uuid

KEPT_EVENTS = 1000
KINDS = {"pods": "Pod", "configmaps": "ConfigMap", "leases": "Lease", "networkpolicies": "NetworkPolicy", "sandboxclaims": "SandboxClaim", "namespaces": "Namespace"}


class Refused(Exception):
    """An answer that is no success, as a Status object."""

    def __init__(self, code, reason, message, headers=None, **details):
        super().__init__(message)
        self.code, self.headers = code, headers or {}
        self.body = status(code, reason, message, **details)


def status(code, reason, message, **details):
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "details": details, "code": code}


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def selects(selector, labels):
    """KEY, KEY=VALUE, KEY!=VALUE, joined by commas."""
    for term in filter(None, selector.split(",")):
        if "!=" in term:
            key, value = term.split("!=", 1)
            if labels.get(key) == value:
                return False
        elif "=" in term:
            key, value = term.split("=", 1)
            if labels.get(key) != value.lstrip("="):
                return False
        elif term not in labels:
            return False
    return True


def merge(target, patch):
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


class Store:
    """All objects by (resource, namespace, name), and the events since a version that `expire` moves up."""

    def __init__(self):
        self.changed = threading.Condition()
        self.objects = {}
        self.version = 1000
        self.events = []  # (version, type, resource, namespace, object)
        self.oldest = 1000  # versions below it are answered with 410

    def note(self, kind, resource, item):
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, resource, item["metadata"].get("namespace"), copy.deepcopy(item)))
        if len(self.events) > KEPT_EVENTS:
            self.oldest = self.events.pop(0)[0]
        self.changed.notify_all()

    def create(self, resource, namespace, item, api_version):
        name = item.get("metadata", {}).get("name")
        if not name:
            raise Refused(422, "Invalid", f"{KINDS.get(resource, resource)} \"\" is invalid: metadata.name: Required value: name or generateName is required")
        with self.changed:
            if (resource, namespace, name) in self.objects:
                raise Refused(409, "AlreadyExists", f"{resource} \"{name}\" already exists", name=name, kind=resource)
            item = copy.deepcopy(item)
            item.setdefault("apiVersion", api_version)
            item.setdefault("kind", KINDS.get(resource, resource))
            item["metadata"] |= {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
            self.objects[resource, namespace, name] = item
            self.note("ADDED", resource, item)
            return copy.deepcopy(item)

    def get(self, resource, namespace, name):
        with self.changed:
            if (resource, namespace, name) not in self.objects:
                raise Refused(404, "NotFound", f"{resource} \"{name}\" not found", name=name, kind=resource)
            return copy.deepcopy(self.objects[resource, namespace, name])

    def change(self, resource, namespace, name, function):
        """Applies function to the object; None when it is gone."""
        with self.changed:
            item = self.objects.get((resource, namespace, name))
            if item is None:
                return None
            before = json.dumps(item, sort_keys=True)
            function(item)
            if json.dumps(item, sort_keys=True) != before:
                self.note("MODIFIED", resource, item)
            return copy.deepcopy(item)

    def replace(self, resource, namespace, name, item):
        old = self.get(resource, namespace, name)
        wanted = item.get("metadata", {}).get("resourceVersion")
        if wanted and wanted != old["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f"Operation cannot be fulfilled on {resource} \"{name}\": the object has been modified; please apply your changes to the latest version and try again",
                          name=name, kind=resource)
        kept = {key: old["metadata"][key] for key in ("uid", "creationTimestamp", "namespace")}

        def put(target):
            target.clear()
            target.update(copy.deepcopy(item))
            target["metadata"] |= kept
        return self.change(resource, namespace, name, put)

    def remove(self, resource, namespace, name):
        with self.changed:
            item = self.objects.pop((resource, namespace, name), None)
            if item:
                self.note("DELETED", resource, item)
            return item

    def list(self, resource, namespace, selector):
        with self.changed:
            items = [copy.deepcopy(item) for (kind, place, _), item in sorted(self.objects.items())
                     if kind == resource and namespace in (None, place) and selects(selector, item["metadata"].get("labels", {}))]
            return items, self.version

    def expire(self):
        """From now on no watch can begin before this moment."""
        with self.changed:
            self.oldest = self.version + 1
            self.version += 1
            self.events.clear()
            self.changed.notify_all()
