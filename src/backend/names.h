/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The backends that exist: a row for each, and the only list of them. Settings, the command line,
 * the API and the daemon read these rows; registry.c adds NAME_backend_check() and
 * NAME_backend_open() to each.
 *
 * The header has words and no code, and includes nothing: the table of settings, which stands below
 * the backends, may include it.
 *
 *     X(name, needs_launcher, summary)
 *
 * needs_launcher: the daemon starts the privileged launcher for it.
 */

#define BACKEND_ROWS(X)                                                                     \
    X(native, true, "Linux namespaces, cgroups, seccomp and Landlock; no container engine") \
    X(direct, true, "plain processes of the host, WITHOUT ISOLATION")                       \
    X(docker, false, "containers of a Docker or Podman engine")                             \
    X(gvisor, false, "containers of an engine whose system calls gVisor answers")           \
    X(kubernetes, false, "pods of a Kubernetes cluster")                                    \
    X(none, false, "no sandboxes: every use of one is refused")

/* { "native", "direct" … }, for an array of texts. */
#define BACKEND_NAME(name, ...) #name,
#define BACKEND_NAMES BACKEND_ROWS(BACKEND_NAME)

/* " native direct …", to be appended to a literal; and without the first space, as the choices of an
 * option. */
#define BACKEND_WORD(name, ...) " " #name
#define BACKEND_TEXT BACKEND_ROWS(BACKEND_WORD)
#define BACKEND_WORDS (&(BACKEND_TEXT)[1])
