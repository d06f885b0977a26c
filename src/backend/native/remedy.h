/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The remedy for a feature that the host lacks for native sandboxes. `missing` names or contains
 * the step that the host refused to the launcher. Returns a literal. */
const char *native_remedy(const char *missing);
