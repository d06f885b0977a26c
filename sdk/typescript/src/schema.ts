// Documents of the API as types. Written by scripts/sdk from the OpenAPI document: do not edit.

export interface components {
    schemas: {
        /** @description An execution or process that keeps a session alive. */
        Activity: {
            /** @enum {string} */
            kind: "execution" | "background";
            execution_id?: string;
            process?: string | null;
            cpu_seconds?: number | null;
            /** Format: date-time */
            since: string | null;
            /** Format: date-time */
            until?: string | null;
        };
        /** @description A question to the person who pays. */
        Approval: {
            /** @description apr_… */
            id: string;
            /** @enum {string} */
            kind: "approval";
            /** @enum {string} */
            state: "pending" | "approved" | "denied" | "expired" | "cancelled";
            session_id: string;
            /**
             * @deprecated
             * @description the old name of session_id
             */
            session: string;
            owner: string;
            requested_by: string | null;
            on_behalf_of: string | null;
            flavor: string;
            price_per_hour: number | null;
            estimated_usd: number | null;
            question: string | null;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            expires_at: string | null;
            /** @enum {string|null} */
            scope: "once" | "session" | null;
            decided_by: string | null;
            /** Format: date-time */
            decided_at: string | null;
            decision_reason: string | null;
            result: string | null;
        };
        /** @description Approvals. */
        ApprovalList: {
            approvals: components["schemas"]["Approval"][];
            /** @description null: the last page */
            next_cursor: string | null;
        };
        /** @description An approval, and what happens next. */
        ApprovalRequest: {
            /** @description apr_… */
            id: string;
            /** @enum {string} */
            kind: "approval";
            /** @enum {string} */
            state: "pending" | "approved" | "denied" | "expired" | "cancelled";
            session_id: string;
            /**
             * @deprecated
             * @description the old name of session_id
             */
            session: string;
            owner: string;
            requested_by: string | null;
            on_behalf_of: string | null;
            flavor: string;
            price_per_hour: number | null;
            estimated_usd: number | null;
            question: string | null;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            expires_at: string | null;
            /** @enum {string|null} */
            scope: "once" | "session" | null;
            decided_by: string | null;
            /** Format: date-time */
            decided_at: string | null;
            decision_reason: string | null;
            result: string | null;
            message: string;
        };
        /** @description Lines of the audit log, the oldest first. */
        AuditEntries: {
            entries: {
                [key: string]: unknown;
            }[];
        };
        /** @description A backend, which makes sandboxes, and its features. */
        Backend: {
            name: string;
            summary: string;
            default: boolean;
            /** @description a session may name it */
            selectable: boolean;
            active: boolean;
            healthy: boolean;
            /** @description why it is not active or not healthy */
            reason: string | null;
            freeze?: boolean;
            usage?: boolean;
            limits?: boolean;
            outlives_daemon?: boolean;
            gpus?: boolean;
            network?: boolean;
            disk?: boolean;
            templates?: boolean;
            /** @description sessions may mount directories of the host */
            mounts?: boolean;
        };
        /** @description Backends. */
        BackendList: {
            backends: components["schemas"]["Backend"][];
            /** @description null: the last page */
            next_cursor: string | null;
        };
        /** @description The budget of a session. */
        Budget: {
            session_id: string;
            /**
             * @deprecated
             * @description the old name of session_id
             */
            session: string;
            auto_approve: boolean;
            cap_usd: number;
            spent_usd: number;
            reserved_usd: number;
            remaining_usd: number;
            next_threshold_usd: number;
            approved_flavors: unknown;
            /** @description the metered sandbox */
            meter: components["schemas"]["Meter"] | null;
            owner: components["schemas"]["OwnerBudget"];
        };
        /** @description Call a tool; the body holds its arguments: its body */
        CallSessionTool: {
            [key: string]: unknown;
        };
        /** @description Call a tool that finds its session itself: its body */
        CallTool: {
            [key: string]: unknown;
        };
        /** @description Slots for sandboxes. */
        Capacity: {
            max_sandboxes: number;
            max_per_owner: number;
            /** @description evict, wait or reject */
            overflow: string;
            burst: number;
            sandboxes: number;
            waiting: number;
            /** @description could be evicted */
            idle: number;
            /** @description ready for the next session */
            pool: number;
            /** @description of the caller's owner */
            own: number;
            host?: components["schemas"]["HostLoad"];
            /** @description in a cluster: the same of each node */
            nodes?: components["schemas"]["NodeCapacity"][];
        };
        /** @description Start the sandbox, or request one of another flavor: its body */
        ChangeSandbox: {
            flavor?: string;
            /** @description bytes, or text such as 512m, 2g */
            memory_bytes?: number | string;
            /** @description bytes, or text such as 512m, 2g */
            disk_bytes?: number | string;
            cpus?: number;
            pids?: number;
            /**
             * @deprecated
             * @description the old name of memory_bytes
             */
            memory?: number | string;
            /**
             * @deprecated
             * @description the old name of disk_bytes
             */
            disk?: number | string;
        };
        /** @description The daemon's own walls. */
        Confinement: {
            mode: string | null;
            seccomp: boolean;
            landlock: number;
            missing: string | null;
        };
        /** @description An interpreter that keeps its state. */
        Context: {
            /** @description ctx_… */
            id: string;
            session_id: string;
            language: string;
            /** @enum {string} */
            state: "starting" | "idle" | "busy" | "stopped";
            cwd: string | null;
            /** @description the interpreter */
            execution_id: string | null;
            /** @description how often the interpreter was replaced */
            replacements: number;
            /** @description why it was replaced last */
            cause: string | null;
            /** Format: date-time */
            created_at: string;
        };
        /** @description Contexts of a session. */
        ContextList: {
            contexts: components["schemas"]["Context"][];
            /** @description null: the last page */
            next_cursor: string | null;
        };
        /** @description Start a context: an interpreter that keeps its state: its body */
        CreateContext: {
            language?: string;
            cwd?: string;
            env?: {
                [key: string]: string;
            };
        };
        /** @description Create a signed URL for a port: its body */
        CreatePortUrl: {
            /** @description seconds, or text such as 90s, 30m, 4h */
            valid_seconds?: number | string;
            generation?: number;
            /**
             * @deprecated
             * @description the old name of valid_seconds
             */
            valid_for?: number | string;
            /**
             * @deprecated
             * @description the old name of valid_seconds
             */
            expires?: number | string;
        };
        /** @description Create a session, or return the one with this key: its body */
        CreateSession: {
            key?: string;
            template?: string;
            flavor?: string;
            backend?: string;
            node?: string;
            node_labels?: {
                [key: string]: string;
            };
            labels?: {
                [key: string]: string;
            };
            /** @description bytes, or text such as 512m, 2g */
            memory_bytes?: number | string;
            /** @description bytes, or text such as 512m, 2g */
            disk_bytes?: number | string;
            cpus?: number;
            pids?: number;
            network?: string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            lease_seconds?: number | string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            idle_timeout_seconds?: number | string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            max_lifetime_seconds?: number | string;
            on_timeout?: string;
            mounts?: {
                host_path: string;
                path?: string;
                read_only?: boolean;
            }[];
            preload?: boolean;
            auto_restart?: boolean;
            auto_resume?: boolean;
            keep_files?: boolean;
            env?: {
                [key: string]: string;
            };
            secrets?: {
                [key: string]: string;
            };
            /**
             * @deprecated
             * @description the old name of lease_seconds
             */
            timeout?: number | string;
            /**
             * @deprecated
             * @description the old name of idle_timeout_seconds
             */
            idle_timeout?: number | string;
            /**
             * @deprecated
             * @description the old name of max_lifetime_seconds
             */
            max_lifetime?: number | string;
            /**
             * @deprecated
             * @description the old name of memory_bytes
             */
            memory?: number | string;
            /**
             * @deprecated
             * @description the old name of disk_bytes
             */
            disk?: number | string;
        };
        /** @description Create a URL that gives read access to a stored file: its body */
        CreateStoredFileUrl: {
            /** @description seconds, or text such as 90s, 30m, 4h */
            valid_seconds?: number | string;
            /**
             * @deprecated
             * @description the old name of valid_seconds
             */
            valid_for?: number | string;
        };
        /** @description Create a URL with which a closing web page tears the sandbox down: its body */
        CreateTeardownUrl: {
            /** @description seconds, or text such as 90s, 30m, 4h */
            valid_seconds?: number | string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            grace_seconds?: number | string;
            /**
             * @deprecated
             * @description the old name of grace_seconds
             */
            grace?: number | string;
            /**
             * @deprecated
             * @description the old name of valid_seconds
             */
            valid_for?: number | string;
        };
        /** @description Approve or deny a request: its body */
        DecideApproval: {
            decision: string;
            reason?: string;
            once?: boolean;
            session?: boolean;
        };
        /** @description Replace a text that occurs exactly once in a file: its body */
        EditFile: {
            path: string;
            old: string;
            new: string;
            replace_all?: boolean;
        };
        /** @description A file after an edit. */
        Edited: {
            path: string;
            /** @description file, directory, link, … */
            type: string;
            size_bytes: number;
            /**
             * @deprecated
             * @description the old name of size_bytes
             */
            size: number;
            /** @description octal */
            mode: string;
            uid: number;
            gid: number;
            /** Format: date-time */
            modified: string | null;
            etag: string;
            /** @description of a symbolic link */
            target?: string;
            /** @description why it could not be read */
            error?: components["schemas"]["ErrorDetail"];
            replacements: number;
        };
        /**
         * @description An empty object: the request was done.
         * @example {}
         */
        Empty: Record<string, never>;
        /**
         * @description A failed request.
         * @example {
         *       "error": {
         *         "code": "session_not_found",
         *         "message": "there is no session ses_x",
         *         "hint": "list sessions with GET /api/v1/sessions",
         *         "retryable": false
         *       }
         *     }
         */
        Error: {
            error: components["schemas"]["ErrorDetail"];
            /** @description of 410: the final record */
            session?: components["schemas"]["Session"];
        };
        /** @description An error: stable code, sentences for people. */
        ErrorDetail: {
            /** @description stable name of the error; more may be added */
            code: string;
            /** @description the error, for people */
            message: string;
            /** @description the remedy */
            hint: string;
            /** @description the same request may succeed later */
            retryable: boolean;
            /** @description of 410: why the session ended */
            reason?: string;
            /** @description of match_count: how often the text occurs */
            count?: number;
            /** @description of command_blocked: the name of the rule */
            rule?: string;
        };
        /** @description Something that happened. */
        Event: {
            /** @description its number; also the id of the Server-Sent Event */
            sequence: number;
            /** @description session.created, sandbox.ready, execution.ended, … */
            type: string;
            session_id: string | null;
            /** @description its number in the session */
            session_sequence: number;
            /** Format: date-time */
            time: string;
            data: {
                [key: string]: unknown;
            };
        };
        /** @description Exchange a one-time token for the cookie: its body */
        ExchangeLoginToken: {
            token: string;
        };
        /** @description Run code in a session, which is created on demand with the options of POST /sessions: its body */
        Execute: {
            code: string;
            language?: string;
            session_id?: string;
            key?: string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            timeout_seconds?: number | string;
            env?: {
                [key: string]: string;
            };
            secrets?: {
                [key: string]: string;
            };
            cwd?: string;
            ephemeral?: boolean;
            cancel_on_disconnect?: boolean;
            template?: string;
            flavor?: string;
            backend?: string;
            node?: string;
            node_labels?: {
                [key: string]: string;
            };
            labels?: {
                [key: string]: string;
            };
            /** @description bytes, or text such as 512m, 2g */
            memory_bytes?: number | string;
            /** @description bytes, or text such as 512m, 2g */
            disk_bytes?: number | string;
            cpus?: number;
            pids?: number;
            network?: string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            lease_seconds?: number | string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            idle_timeout_seconds?: number | string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            max_lifetime_seconds?: number | string;
            on_timeout?: string;
            mounts?: {
                host_path: string;
                path?: string;
                read_only?: boolean;
            }[];
            preload?: boolean;
            auto_restart?: boolean;
            auto_resume?: boolean;
            keep_files?: boolean;
            /**
             * @deprecated
             * @description the old name of timeout_seconds
             */
            timeout?: number | string;
            /**
             * @deprecated
             * @description the old name of idle_timeout_seconds
             */
            idle_timeout?: number | string;
            /**
             * @deprecated
             * @description the old name of max_lifetime_seconds
             */
            max_lifetime?: number | string;
            /**
             * @deprecated
             * @description the old name of memory_bytes
             */
            memory?: number | string;
            /**
             * @deprecated
             * @description the old name of disk_bytes
             */
            disk?: number | string;
        };
        /** @description Code that has run, and its session. */
        ExecuteResult: {
            stdout: string;
            stderr: string;
            truncated: boolean;
            /** @enum {string} */
            state: "queued" | "running" | "exited" | "timeout" | "output_limit" | "cancelled" | "crashed";
            exit_code: number | null;
            signal: number | null;
            reason: string | null;
            /** @description why it was not started, or why its output is not complete */
            error: components["schemas"]["ErrorDetail"] | null;
            execution_id: string;
            duration_seconds: number;
            files_were_reset: boolean;
            warning: string | null;
            reset_reason: string | null;
            session_id: string;
            session_ended: boolean;
            /** @description until the next clock ends the session */
            session_time_remaining_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of session_time_remaining_seconds
             */
            session_ttl_remaining: number | null;
            /** @description files of the workspace */
            session_files: components["schemas"]["StoredFile"][];
            /** @description those that are new or changed */
            output_files: string[];
        };
        /** @description A program that runs or has run. */
        Execution: {
            /** @description exe_… */
            id: string;
            session_id: string;
            sandbox_id: string | null;
            /** @description the caller's own id */
            key: string | null;
            /** @enum {string} */
            state: "queued" | "running" | "exited" | "timeout" | "output_limit" | "cancelled" | "crashed";
            exit_code: number | null;
            /** @description number of the signal that ended it */
            signal: number | null;
            reason: string | null;
            /** @description why it was not started, or why its output is not complete */
            error: components["schemas"]["ErrorDetail"] | null;
            /** @description of a rule for commands, or that the sandbox has no network */
            warning: string | null;
            background: boolean;
            generation: number;
            /** @description it ran in a new sandbox, without the files of the one before */
            files_were_reset: boolean;
            reset_reason: string | null;
            /** @description null: none */
            timeout_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of timeout_seconds
             */
            timeout: number | null;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            started_at: string | null;
            /** Format: date-time */
            ended_at: string | null;
            duration_seconds: number | null;
            cpu_seconds: number;
            max_memory_bytes: number;
            /** @description all that it wrote, kept or not */
            stdout_bytes: number;
            stderr_bytes: number;
            stdin_bytes?: number;
            stdin_pending?: number;
            /** @description the request that started the execution */
            request: {
                [key: string]: unknown;
            };
            /** @description head and tail */
            stdout?: string;
            stderr?: string;
            truncated?: boolean;
            output_error?: string;
        };
        /** @description Executions of a session. */
        ExecutionCount: {
            running: number;
            total: number;
        };
        /** @description A page of executions, the newest first. */
        ExecutionList: {
            executions: components["schemas"]["Execution"][];
            next_cursor: string | null;
        };
        /** @description A file, directory or link. */
        File: {
            path: string;
            /** @description file, directory, link, … */
            type: string;
            size_bytes: number;
            /**
             * @deprecated
             * @description the old name of size_bytes
             */
            size: number;
            /** @description octal */
            mode: string;
            uid: number;
            gid: number;
            /** Format: date-time */
            modified: string | null;
            etag: string;
            /** @description of a symbolic link */
            target?: string;
            /** @description why it could not be read */
            error?: components["schemas"]["ErrorDetail"];
        };
        /** @description Of the events created, modified, written, deleted, … of a watch. */
        FileChange: {
            path?: string;
            is_directory?: boolean;
            /** @description of watching */
            directories?: number;
            /** @description of watching */
            truncated?: boolean;
            /** @description of end */
            reason?: string | null;
        };
        /** @description A page of a directory. */
        FileList: {
            entries: components["schemas"]["File"][];
            total: number;
            next_cursor: string | null;
            truncated: boolean;
        };
        /** @description A size of sandboxes, and its price. */
        Flavor: {
            /** @description null: not limited */
            memory_bytes: number | null;
            cpus: number | null;
            pids: number | null;
            disk_bytes: number | null;
            name: string;
            backend: string;
            gpus: number;
            price_per_hour: number | null;
            needs_approval: boolean;
            default: boolean;
            available: boolean;
            /** @description why it is not available */
            reason: string | null;
        };
        /** @description Flavors. */
        FlavorList: {
            flavors: components["schemas"]["Flavor"][];
            /** @description null: the last page */
            next_cursor: string | null;
        };
        /** @description A line of a file. */
        GrepLine: {
            path: string;
            line: number;
            text: string;
            /** @description false: a line of the context */
            match: boolean;
            /** @description the line is longer */
            cut?: boolean;
        };
        /** @description Lines that match. */
        GrepResult: {
            lines: components["schemas"]["GrepLine"][];
            matches: number;
            files_skipped: number;
            truncated: boolean;
        };
        /** @description The daemon lives. */
        Health: {
            status: string;
            version: string;
            instance: string;
            uptime_seconds: number;
            confinement?: components["schemas"]["Confinement"];
        };
        /** @description A page of a session's history. */
        History: {
            session: components["schemas"]["Session"];
            entries: components["schemas"]["HistoryEntry"][];
            next_cursor: string | null;
        };
        /** @description An event, with the execution if one has ended. */
        HistoryEntry: {
            /** @description its number; also the id of the Server-Sent Event */
            sequence: number;
            /** @description session.created, sandbox.ready, execution.ended, … */
            type: string;
            session_id: string | null;
            /** @description its number in the session */
            session_sequence: number;
            /** Format: date-time */
            time: string;
            data: {
                [key: string]: unknown;
            };
            execution?: components["schemas"]["Execution"];
        };
        /** @description The resources of the host, and its load. */
        HostLoad: {
            cpus: number;
            /** @description of the last minute */
            load: number;
            memory_bytes: number;
            memory_available_bytes?: number;
        };
        /** @description Interrupt the running code; the interpreter stays: its body */
        InterruptContext: Record<string, never>;
        /** @description Interrupt all tool calls of a session; the sandbox stays: its body */
        InterruptTools: Record<string, never>;
        /** @description Interrupted calls. */
        Interrupted: {
            interrupted: number;
        };
        /** @description The lease ends at now plus lease_seconds; never earlier than before unless exact: its body */
        KeepSessionAlive: {
            /** @description seconds, or text such as 90s, 30m, 4h */
            lease_seconds?: number | string;
            exact?: boolean;
            /**
             * @deprecated
             * @description the old name of lease_seconds
             */
            timeout?: number | string;
        };
        /** @description A file of a saved workspace. */
        KeptFile: {
            path: string;
            type: string;
            size_bytes: number;
            /**
             * @deprecated
             * @description the old name of size_bytes
             */
            size: number;
            /** Format: date-time */
            modified: string | null;
        };
        /** @description A saved workspace. */
        KeptList: {
            files: components["schemas"]["KeptFile"][];
            /** @description of the archive */
            size_bytes: number;
            /**
             * @deprecated
             * @description the old name of size_bytes
             */
            bytes: number;
            /** Format: date-time */
            kept_at: string | null;
        };
        /** @description A saved workspace. */
        KeptWorkspace: {
            size_bytes: number;
            /**
             * @deprecated
             * @description the old name of size_bytes
             */
            bytes: number;
            /** Format: date-time */
            kept_at: string;
            generation: number;
        };
        /** @description An API key, without its secret. */
        Key: {
            id: string;
            principal: string;
            roles: string[];
            /** Format: date-time */
            created_at: string | null;
            /** Format: date-time */
            expires_at: string | null;
            /** Format: date-time */
            revoked_at: string | null;
            /** Format: date-time */
            last_used_at: string | null;
        };
        /** @description API keys. */
        KeyList: {
            keys: components["schemas"]["Key"][];
            /** @description null: the last page */
            next_cursor: string | null;
        };
        /** @description Limits of a sandbox. */
        Limits: {
            /** @description null: not limited */
            memory_bytes: number | null;
            cpus: number | null;
            pids: number | null;
            disk_bytes: number | null;
        };
        /** @description A login of the dashboard. */
        Login: {
            /** Format: date-time */
            expires_at: string;
        };
        /** @description A one-time token for the dashboard. */
        LoginToken: {
            token: string;
            url: string;
            /** Format: date-time */
            expires_at: string;
        };
        /** @description Create a directory and its parents: its body */
        MakeDirectory: {
            path: string;
        };
        /** @description Files that match a pattern. */
        Matches: {
            entries: components["schemas"]["File"][];
            truncated: boolean;
        };
        /** @description The meter of a sandbox with a price. */
        Meter: {
            flavor: string;
            sandbox_id: string | null;
            /**
             * @deprecated
             * @description the old name of sandbox_id
             */
            sandbox: string | null;
            price_per_hour: number;
            /** Format: date-time */
            started_at: string | null;
            /** Format: date-time */
            reserved_until: string | null;
        };
        /** @description A directory of the host in a sandbox. */
        Mount: {
            /** @description directory of the daemon's host */
            host_path: string;
            /** @description where it is inside */
            path: string;
            read_only: boolean;
        };
        /** @description Move a file or directory: its body */
        MoveFile: {
            from: string;
            to: string;
            replace?: boolean;
        };
        /** @description The clock that ends the session next, if it is not used. */
        NextEnd: {
            reason: string;
            in_seconds: number | null;
        };
        /** @description A daemon of the cluster. */
        Node: {
            id: string;
            address: string | null;
            /** @description up, draining, … */
            state: string;
            self: boolean;
            epoch?: number;
            lease_remaining_seconds?: number;
            /**
             * @deprecated
             * @description the old name of lease_remaining_seconds
             */
            lease_remaining?: number;
            sessions: number;
            sandboxes: number;
            max_sandboxes: number;
            load?: number;
            backends?: string[];
            labels?: {
                [key: string]: string;
            };
            version: string | null;
        };
        /** @description Slots for sandboxes of a node. */
        NodeCapacity: {
            node: string;
            /** @description null: it did not answer */
            capacity: components["schemas"]["Capacity"] | null;
        };
        /** @description A node that takes sessions, or does not. */
        NodeDrain: {
            id: string;
            state: string;
            sessions: number;
        };
        /** @description Daemons of the cluster. */
        NodeList: {
            nodes: components["schemas"]["Node"][];
            /** @description null: the last page */
            next_cursor: string | null;
            clustered: boolean;
        };
        /** @description Open a scope: an owner, new or given, whose sessions end with this connection: its body */
        OpenScope: {
            owner?: string;
        };
        /** @description Of the events stdout, stderr and exit of a stream. */
        OutputEvent: {
            /** @description of its first byte */
            offset?: number;
            text?: string;
            /** @description bytes that are not UTF-8 */
            base64?: string;
            /** @description of exit, with the other fields of the execution */
            state?: string;
        };
        /** @description The budget of an owner. */
        OwnerBudget: {
            owner: string;
            /** @description null: no cap */
            cap_usd: number | null;
            spent_usd: number;
            reserved_usd: number;
            remaining_usd: number | null;
        };
        /** @description Freeze the sandbox of a session: its body */
        PauseSession: Record<string, never>;
        /** @description A TCP port inside a sandbox. */
        Port: {
            port: number;
            /** @description where requests to it are sent */
            path: string;
            url?: string | null;
        };
        /** @description TCP ports that programs in the sandbox listen on. */
        PortList: {
            ports: components["schemas"]["Port"][];
            /** @description null: the last page */
            next_cursor: string | null;
            truncated: boolean;
        };
        /** @description A signed URL for a port. */
        PortUrl: {
            session_id: string;
            port: number;
            url: string | null;
            path: string;
            /** Format: date-time */
            expires_at: string;
        };
        /** @description The daemon serves. */
        Ready: {
            status: string;
        };
        /** @description A member of an archive that was not unpacked. */
        Refused: {
            path: string;
            reason: string;
        };
        /** @description Sessions that were ended. */
        Removal: {
            /** @description their sandboxes are gone */
            destroyed: string[];
            failed: components["schemas"]["RemovalFailure"][];
            skipped: components["schemas"]["RemovalSkip"][];
            dry_run: boolean;
        };
        /** @description A session that could not be ended. */
        RemovalFailure: {
            id: string;
            error: components["schemas"]["ErrorDetail"];
        };
        /** @description A session that was left alone. */
        RemovalSkip: {
            id: string;
            reason: string;
        };
        /** @description Resize the terminal of an execution: its body */
        ResizeTerminal: {
            cols: number;
            rows: number;
        };
        /** @description Restart the interpreter of a context: its body */
        RestartContext: Record<string, never>;
        /** @description Resume the sandbox of a session: its body */
        ResumeSession: Record<string, never>;
        /** @description Code that has run in a context. */
        Run: {
            context_id: string;
            number: number;
            /** @enum {string} */
            state: "waiting" | "running" | "ok" | "error" | "interrupted" | "timeout" | "crashed" | "cancelled" | "failed";
            exit_code: number | null;
            warning: string | null;
            /** @description why the interpreter was lost */
            cause: string | null;
            /** @description why it runs in a new interpreter */
            replaced: string | null;
            /** @description variables are gone */
            context_lost: boolean;
            dropped_messages: number;
            stdout_bytes: number;
            stderr_bytes: number;
            duration_seconds: number;
            stdout: string;
            stderr: string;
            /** @description values and displays, in their order */
            results: components["schemas"]["RunResult"][];
            error: components["schemas"]["RunError"] | null;
            truncated: boolean;
        };
        /** @description Run code in a context: its body */
        RunCode: {
            code: string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            timeout_seconds?: number | string;
            cancel_on_disconnect?: boolean;
            /**
             * @deprecated
             * @description the old name of timeout_seconds
             */
            timeout?: number | string;
        };
        /** @description An exception. */
        RunError: {
            /** @description ZeroDivisionError */
            name: string;
            value: string | null;
            /** @description the innermost last */
            frames: components["schemas"]["RunFrame"][];
            /** @description as the interpreter prints it */
            traceback?: string;
        };
        /** @description Of the events stdout, stderr, display, result, error and done of a run. */
        RunEvent: {
            text?: string;
            data?: {
                [key: string]: unknown;
            };
            /** @description of done, with the other fields of the run */
            state?: string;
        };
        /** @description A call that had not returned. */
        RunFrame: {
            file: string | null;
            line: number | null;
            function: string | null;
            /** @description the line of source */
            text: string | null;
        };
        /** @description A value or a display: by media type. */
        RunResult: {
            /** @enum {string} */
            type: "result" | "display";
            /** @description text/plain, image/png, … */
            data: {
                [key: string]: unknown;
            };
        };
        /** @description The sandbox of a session. */
        Sandbox: {
            /** @description null: there is no sandbox at the moment */
            id: string | null;
            /** @enum {string} */
            state: "none" | "creating" | "ready" | "unknown" | "freezing" | "frozen" | "thawing" | "frozen_by_others" | "crashed" | "destroying";
            /** @description number of this sandbox in its session */
            generation: number;
            /** @description first process of the sandbox, as the host sees it */
            pid?: number | null;
            /** @description container of the sandbox, with the backends docker and gvisor */
            container?: string | null;
            /** @description pod of the sandbox, with the backend kubernetes */
            pod?: string | null;
            /** @description node of the cluster that has the pod; empty until one has it */
            pod_node?: string | null;
            /** @description failed attempts to start it */
            attempts: number;
            /** @description why it could not be started, or not be removed */
            error: components["schemas"]["ErrorDetail"] | null;
            /**
             * @deprecated
             * @description the old name of error
             */
            last_error: string | null;
            /** @description why the sandbox before this one ended */
            previous_end: string | null;
            /** @description the walls in force, as read back from the kernel */
            isolation: {
                [key: string]: unknown;
            } | null;
        };
        /** @description The first line of a scope's answer. */
        ScopeLine: {
            owner: string;
        };
        /** @description Send a message of the Model Context Protocol (JSON-RPC): its body */
        SendMcpMessage: {
            [key: string]: unknown;
        };
        /** @description A session, live or ended. */
        Session: {
            /** @description ses_… */
            id: string;
            /** @description whose session it is; empty without one */
            owner: string;
            /** @description the caller's own name for it */
            key: string | null;
            on_behalf_of: string | null;
            labels: {
                [key: string]: string;
            };
            /** @enum {string} */
            state: "open" | "paused" | "ending" | "ended";
            /** @description idle, lease, lifetime, deleted, evicted, crashed, shutdown, budget, replaced, failed, teardown or node lost, with a detail behind a colon */
            end_reason: string | null;
            /** @description number of its current or last sandbox */
            generation: number;
            template: string | null;
            flavor: string | null;
            /** @description how the flavor was chosen */
            choice: string;
            backend: string | null;
            /** @description none, open, or host where the backend has no wall to the network */
            network: string | null;
            /** @description in force */
            limits: components["schemas"]["Limits"];
            /** @description directories of the host in its sandboxes */
            mounts: components["schemas"]["Mount"][];
            /** @description names of its secrets */
            secrets: string[];
            keep_files: boolean;
            /** @description the workspace that was saved last */
            kept: components["schemas"]["KeptWorkspace"] | null;
            auto_restart: boolean;
            auto_resume: boolean;
            /** @description kill or pause */
            on_timeout: string | null;
            /** @description how long its lease is; null: none */
            lease_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of lease_seconds
             */
            timeout: number | null;
            /** @description without use until it ends; null: none */
            idle_timeout_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of idle_timeout_seconds
             */
            idle_timeout: number | null;
            /** @description from its creation until it ends; null: none */
            max_lifetime_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of max_lifetime_seconds
             */
            max_lifetime: number | null;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            started_at: string | null;
            /** Format: date-time */
            last_activity_at: string | null;
            /** Format: date-time */
            ended_at: string | null;
            /**
             * Format: date-time
             * @description end of its lease
             */
            expires_at: string | null;
            expires_at_clock: string | null;
            /** @description until the next clock ends it */
            time_remaining_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of time_remaining_seconds
             */
            time_remaining: number | null;
            time_remaining_clock: string | null;
            lease_remaining_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of lease_remaining_seconds
             */
            lease_remaining: number | null;
            idle_remaining_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of idle_remaining_seconds
             */
            idle_remaining: number | null;
            lifetime_remaining_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of lifetime_remaining_seconds
             */
            lifetime_remaining: number | null;
            next_end: components["schemas"]["NextEnd"] | null;
            sandbox: components["schemas"]["Sandbox"];
            /** @description the last measurement */
            usage: components["schemas"]["Usage"] | null;
            executions: components["schemas"]["ExecutionCount"];
            /** @description why the idle clock does not run */
            kept_alive_by: components["schemas"]["Activity"] | null;
            spent_usd: number;
            /** @description the approval that its sandbox waits for */
            approval: string | null;
            /** @description where it is, in a cluster */
            node: string | null;
        };
        /** @description A session, with a message about the change. */
        SessionChange: {
            /** @description ses_… */
            id: string;
            /** @description whose session it is; empty without one */
            owner: string;
            /** @description the caller's own name for it */
            key: string | null;
            on_behalf_of: string | null;
            labels: {
                [key: string]: string;
            };
            /** @enum {string} */
            state: "open" | "paused" | "ending" | "ended";
            /** @description idle, lease, lifetime, deleted, evicted, crashed, shutdown, budget, replaced, failed, teardown or node lost, with a detail behind a colon */
            end_reason: string | null;
            /** @description number of its current or last sandbox */
            generation: number;
            template: string | null;
            flavor: string | null;
            /** @description how the flavor was chosen */
            choice: string;
            backend: string | null;
            /** @description none, open, or host where the backend has no wall to the network */
            network: string | null;
            /** @description in force */
            limits: components["schemas"]["Limits"];
            /** @description directories of the host in its sandboxes */
            mounts: components["schemas"]["Mount"][];
            /** @description names of its secrets */
            secrets: string[];
            keep_files: boolean;
            /** @description the workspace that was saved last */
            kept: components["schemas"]["KeptWorkspace"] | null;
            auto_restart: boolean;
            auto_resume: boolean;
            /** @description kill or pause */
            on_timeout: string | null;
            /** @description how long its lease is; null: none */
            lease_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of lease_seconds
             */
            timeout: number | null;
            /** @description without use until it ends; null: none */
            idle_timeout_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of idle_timeout_seconds
             */
            idle_timeout: number | null;
            /** @description from its creation until it ends; null: none */
            max_lifetime_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of max_lifetime_seconds
             */
            max_lifetime: number | null;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            started_at: string | null;
            /** Format: date-time */
            last_activity_at: string | null;
            /** Format: date-time */
            ended_at: string | null;
            /**
             * Format: date-time
             * @description end of its lease
             */
            expires_at: string | null;
            expires_at_clock: string | null;
            /** @description until the next clock ends it */
            time_remaining_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of time_remaining_seconds
             */
            time_remaining: number | null;
            time_remaining_clock: string | null;
            lease_remaining_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of lease_remaining_seconds
             */
            lease_remaining: number | null;
            idle_remaining_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of idle_remaining_seconds
             */
            idle_remaining: number | null;
            lifetime_remaining_seconds: number | null;
            /**
             * @deprecated
             * @description the old name of lifetime_remaining_seconds
             */
            lifetime_remaining: number | null;
            next_end: components["schemas"]["NextEnd"] | null;
            sandbox: components["schemas"]["Sandbox"];
            /** @description the last measurement */
            usage: components["schemas"]["Usage"] | null;
            executions: components["schemas"]["ExecutionCount"];
            /** @description why the idle clock does not run */
            kept_alive_by: components["schemas"]["Activity"] | null;
            spent_usd: number;
            /** @description the approval that its sandbox waits for */
            approval: string | null;
            /** @description where it is, in a cluster */
            node: string | null;
            message: string;
        };
        /** @description A page of sessions. */
        SessionList: {
            sessions: components["schemas"]["Session"][];
            /** @description null: the last page */
            next_cursor: string | null;
            total: number;
            max_sessions: number | null;
            /** @description nodes of the cluster that did not answer */
            missing_nodes?: string[];
        };
        /** @description Send a signal to an execution, or to its process tree: its body */
        SignalExecution: {
            tree?: boolean;
            /** @description SIGTERM, TERM or 15 */
            signal?: string | number;
        };
        /** @description Run a program in a session: its body */
        StartExecution: {
            argv?: string[];
            command?: string;
            code?: string;
            language?: string;
            env?: {
                [key: string]: string;
            };
            secrets?: {
                [key: string]: string;
            };
            cwd?: string;
            user?: string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            timeout_seconds?: number | string;
            background?: boolean;
            generation?: number;
            key?: string;
            output_full?: string;
            cancel_on_disconnect?: boolean;
            /** @description the complete input, or true: the input is sent to the stdin route */
            stdin?: string | boolean;
            /** @description a terminal instead of pipes */
            tty?: boolean | {
                cols?: number;
                rows?: number;
            };
            /**
             * @deprecated
             * @description the old name of timeout_seconds
             */
            timeout?: number | string;
        };
        /**
         * @description The bytes of input that were written, and whether the input is closed.
         * @example {
         *       "written": 6,
         *       "closed": false
         *     }
         */
        StdinWritten: {
            written: number;
            closed: boolean;
        };
        /** @description A file by its name. */
        StoredFile: {
            name: string;
            size_bytes: number;
            /**
             * @deprecated
             * @description the old name of size_bytes
             */
            size: number;
            /** Format: date-time */
            modified: string | null;
        };
        /** @description Stored files. */
        StoredList: {
            files: components["schemas"]["StoredFile"][];
            /** @description null: the last page */
            next_cursor: string | null;
        };
        /** @description A URL that gives read access. */
        StoredUrl: {
            name: string;
            size_bytes?: number;
            /**
             * @deprecated
             * @description the old name of size_bytes
             */
            size?: number;
            url: string;
            /** Format: date-time */
            expires_at: string;
        };
        /** @description Remove the sandbox and keep the session; the next use starts a new one: its body */
        TeardownSandbox: Record<string, never>;
        /** @description A teardown by URL. */
        TeardownStatus: {
            status: string;
        };
        /** @description A URL that tears a sandbox down. */
        TeardownToken: {
            session_id: string;
            url: string;
            /** Format: date-time */
            expires_at: string;
            grace_seconds: number;
            /**
             * @deprecated
             * @description the old name of grace_seconds
             */
            grace: number;
        };
        /** @description A root file system. */
        Template: {
            name: string;
            default: boolean;
        };
        /** @description Templates. */
        TemplateList: {
            templates: components["schemas"]["Template"][];
            /** @description null: the last page */
            next_cursor: string | null;
        };
        /** @description A tool for models. */
        Tool: {
            name: string;
            title: string;
            description: string;
            annotations: {
                [key: string]: boolean;
            };
            needs_session: boolean;
            /** @description JSON schema of its arguments */
            input_schema: {
                [key: string]: unknown;
            };
        };
        /** @description A part of a tool's answer. */
        ToolContent: {
            /** @description text, image, resource, … */
            type: string;
            text?: string;
            name?: string;
            uri?: string;
            size_bytes?: number;
            /**
             * @deprecated
             * @description the old name of size_bytes
             */
            size?: number;
            mime_type?: string | null;
            /** @description base64 */
            data?: string;
        };
        /** @description Tools for models. */
        ToolList: {
            tools: components["schemas"]["Tool"][];
            /** @description null: the last page */
            next_cursor: string | null;
        };
        /** @description The result of a tool. */
        ToolResult: {
            content: components["schemas"]["ToolContent"][];
            is_error: boolean;
            structured: {
                [key: string]: unknown;
            } | null;
        };
        /** @description The entries of an archive that were unpacked. */
        Unpacked: {
            /** @description files and directories */
            unpacked: number;
            unpacked_bytes: number;
            /**
             * @deprecated
             * @description the old name of unpacked_bytes
             */
            bytes: number;
            refused: components["schemas"]["Refused"][];
            refused_truncated: boolean;
        };
        /** @description Change the cap of an owner; 0: no cap: its body */
        UpdateOwnerBudget: {
            cap_usd: number;
        };
        /** @description Change labels, clocks and policy: its body */
        UpdateSession: {
            labels?: {
                [key: string]: string;
            };
            secrets?: {
                [key: string]: string;
            };
            /** @description seconds, or text such as 90s, 30m, 4h */
            lease_seconds?: number | string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            idle_timeout_seconds?: number | string;
            /** @description seconds, or text such as 90s, 30m, 4h */
            max_lifetime_seconds?: number | string;
            on_timeout?: string;
            auto_restart?: boolean;
            auto_resume?: boolean;
            keep_files?: boolean;
            /**
             * @deprecated
             * @description the old name of lease_seconds
             */
            timeout?: number | string;
            /**
             * @deprecated
             * @description the old name of idle_timeout_seconds
             */
            idle_timeout?: number | string;
            /**
             * @deprecated
             * @description the old name of max_lifetime_seconds
             */
            max_lifetime?: number | string;
        };
        /** @description Change the cap and the automatic approval of a session: its body */
        UpdateSessionBudget: {
            auto_approve?: boolean;
            cap_usd?: number;
        };
        /** @description The resource usage of a sandbox. */
        Usage: {
            cpu_seconds: number;
            memory_bytes: number;
            memory_peak_bytes: number;
            disk_bytes: number;
            pids: number;
            oom_kills: number;
            /** Format: date-time */
            measured_at: string;
        };
        /** @description The resource usage of a sandbox over time. */
        UsageHistory: {
            session_id: string;
            generation: number | null;
            /** @description between samples */
            interval_seconds: number;
            /**
             * @deprecated
             * @description the old name of interval_seconds
             */
            interval: number;
            samples: components["schemas"]["UsageSample"][];
        };
        /** @description The resource usage of a sandbox at one time. */
        UsageSample: {
            /** Format: date-time */
            time: string;
            cpu_seconds: number;
            /** @description 100 for one core */
            cpu_percent: number;
            memory_bytes: number;
            disk_bytes: number;
            pids: number;
        };
        /** @description Whether a condition was met. */
        WaitResult: {
            met: boolean;
            reason: string | null;
            stream: string | null;
            offset: number | null;
            waited_seconds: number;
            execution: components["schemas"]["Execution"];
        };
        /** @description The caller, as the daemon has identified them. */
        Whoami: {
            owner: string;
            principal: string | null;
            on_behalf_of: string | null;
            roles: string[];
            auth_mode: string;
            peer: string | null;
            /** @description over a unix socket */
            uid?: number;
            /** @description the caller may ask for sessions of other owners */
            operator: boolean;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}

export type Schemas = components["schemas"];
