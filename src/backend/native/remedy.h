#pragma once

/* How to get what a host lacks for native sandboxes. `missing` names or contains the step that the
 * launcher found refused. The answer is a literal. */
const char *native_remedy(const char *missing);
