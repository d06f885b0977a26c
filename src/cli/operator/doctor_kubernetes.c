/* SPDX-License-Identifier: Apache-2.0 */
/* The rights of the backend kubernetes, before a sandbox is tried. */

#include "backend/kubernetes/kube_access.h"
#include "base/str.h"
#include "cli/operator/doctor.h"
#include "config/config.h"

void doctor_check_kubernetes(const struct doctor *doctor, doctor_report_fn *report, void *user)
{
    const struct config *config = doctor->config;
    struct finding finding = { 0 };
    struct kube_access access;
    enum finding_status failure;

    if (!config || !config_names_backend(config, "kubernetes"))
        return;
    failure = str_equal(config->sandbox.backend, "kubernetes") ? FINDING_FAIL : FINDING_WARN;
    kube_access_look(&access, config);
    if (access.err.code != ERR_NONE)
        finding_set(&finding, failure, access.err.hint, "%s", access.err.message);
    else if (access.missing)
        finding_set(&finding, failure,
                    config->kubernetes.kind == KUBERNETES_CLAIM
                        ? "give the daemon the Role of deploy/agent-sandbox/role.yaml"
                        : "give the daemon the Role of docs/how-to/kubernetes-backend.md",
                    "in the namespace %.60s the daemon may not: %s", access.namespace,
                    access.names);
    else
        finding_set(&finding, FINDING_OK, NULL,
                    "the API server allows everything that the daemon does in the namespace %s",
                    access.namespace);
    report(user, "kubernetes rights", &finding);
}
