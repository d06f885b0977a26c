#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Any harness, in any language: what it makes with the command line or the API is gone at its end.
exec sandglass scope -- sh -c '
    session=$(sandglass session create --memory 256m)
    sandglass exec "$session" -- python3 -c "print(6 * 7)"
    sandglass execute --code "open(\"left.txt\", \"w\").write(\"nobody cleans this up\")"
'
