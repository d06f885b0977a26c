/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/db.h"

#include "base/macros.h"

#include <stdio.h>

#define BY_HAND(table, order)                                                                  \
    "CREATE TRIGGER " table "_by_hand AFTER UPDATE ON " table " WHEN new.sum IS old.sum BEGIN" \
    " UPDATE " table " SET sum = NULL WHERE " order " = new." order "; END;"

#define LABELS_OF_ENDED                                                                        \
    " FROM sessions CROSS JOIN json_each(iif(json_valid(labels_json), labels_json, '{}')) AS " \
    "label"                                                                                    \
    " WHERE state = 'ended' AND label.type = 'text' AND label.key <> ''"

#define LISTS_BY_HAND(change)                                                    \
    "CREATE TRIGGER lists_by_hand_" change " AFTER " change " ON sessions BEGIN" \
    " INSERT OR REPLACE INTO meta VALUES ('lists_stale', 1); END;"

/*
 * A migration never changes once it is released: a new version is a new row. `seq` is the order of
 * first puts. The indexes serve the queries of store.h, see the table in query.c; indexes for
 * sessions that are not ended are partial, so they do not grow with history.
 */
static const char *const migrations[] = {
    [1] = "CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;"

          "CREATE TABLE sessions ("
          "  seq INTEGER PRIMARY KEY, id TEXT UNIQUE, owner TEXT, key TEXT, on_behalf_of TEXT,"
          "  spec_json TEXT, labels_json TEXT, state TEXT, end_reason TEXT, generation INTEGER,"
          "  idle_timeout_ms INTEGER, max_lifetime_ms INTEGER,"
          "  created_wall_us INTEGER, created_boot_us INTEGER,"
          "  started_wall_us INTEGER, started_boot_us INTEGER,"
          "  last_activity_wall_us INTEGER, last_activity_boot_us INTEGER,"
          "  expires_wall_us INTEGER, expires_boot_us INTEGER,"
          "  ended_wall_us INTEGER, ended_boot_us INTEGER, retain_until_wall_us INTEGER);"
          "CREATE INDEX sessions_owner ON sessions (owner);"
          "CREATE INDEX sessions_live ON sessions (owner) WHERE state <> 'ended';"
          "CREATE INDEX sessions_key ON sessions (key, owner) WHERE key <> '';"
          "CREATE UNIQUE INDEX sessions_live_key ON sessions (key, owner)"
          "  WHERE key <> '' AND state <> 'ended';"
          "CREATE INDEX sessions_retention ON sessions (retain_until_wall_us)"
          "  WHERE retain_until_wall_us > 0;"

          "CREATE TABLE sandboxes ("
          "  seq INTEGER PRIMARY KEY, id TEXT UNIQUE, session_id TEXT, backend TEXT, state TEXT,"
          "  end_reason TEXT, last_error TEXT, generation INTEGER, start_time INTEGER,"
          "  slot INTEGER, attempts INTEGER, pid INTEGER,"
          "  created_wall_us INTEGER, created_boot_us INTEGER);"
          "CREATE INDEX sandboxes_session ON sandboxes (session_id);"

          "CREATE TABLE executions ("
          "  seq INTEGER PRIMARY KEY, id TEXT UNIQUE, session_id TEXT, sandbox_id TEXT, key TEXT,"
          "  request_json TEXT, state TEXT, reason TEXT, error TEXT, generation INTEGER,"
          "  number INTEGER, timeout_ms INTEGER, exit_code INTEGER, signal INTEGER,"
          "  background INTEGER, stdout_bytes INTEGER, stderr_bytes INTEGER, cpu_us INTEGER,"
          "  max_rss_bytes INTEGER,"
          "  created_wall_us INTEGER, created_boot_us INTEGER,"
          "  started_wall_us INTEGER, started_boot_us INTEGER,"
          "  ended_wall_us INTEGER, ended_boot_us INTEGER);"
          "CREATE INDEX executions_session ON executions (session_id);"
          "CREATE INDEX executions_key ON executions (key, session_id) WHERE key <> '';"
          "CREATE INDEX executions_state ON executions (state);"

          "CREATE TABLE events ("
          "  sequence INTEGER PRIMARY KEY, session_sequence INTEGER, session_id TEXT, owner TEXT,"
          "  type TEXT, data_json TEXT, wall_us INTEGER);"
          "CREATE INDEX events_session ON events (session_id);"
          "CREATE INDEX events_owner ON events (owner);"

          "CREATE TABLE documents ("
          "  seq INTEGER PRIMARY KEY, kind TEXT, id TEXT, owner TEXT, json TEXT,"
          "  expires_wall_us INTEGER, UNIQUE (kind, id));"
          "CREATE INDEX documents_owner ON documents (kind, owner);"
          "CREATE INDEX documents_expiry ON documents (expires_wall_us)"
          "  WHERE expires_wall_us > 0;",

    /* Which boot the stamps of a row belong to, and a place for rows that cannot be read. */
    [2] = "ALTER TABLE sessions ADD COLUMN boot INTEGER NOT NULL DEFAULT 0;"
          "ALTER TABLE sandboxes ADD COLUMN boot INTEGER NOT NULL DEFAULT 0;"
          "ALTER TABLE executions ADD COLUMN boot INTEGER NOT NULL DEFAULT 0;"
          "CREATE TABLE damaged ("
          "  seq INTEGER PRIMARY KEY, found_wall_us INTEGER, table_name TEXT, why TEXT,"
          "  content TEXT);",

    /* The id of the database's redo log, and the last frame that the database has. */
    [3] = "INSERT INTO meta VALUES ('redo_id', lower(hex(randomblob(16))));"
          "INSERT INTO meta VALUES ('redo_last', 0);",

    /* Sums of records. Our own connections run no triggers: a row that is changed by hand gets no
     * sum instead of a wrong one. */
    [4] = "ALTER TABLE sessions ADD COLUMN sum INTEGER;"
          "ALTER TABLE sandboxes ADD COLUMN sum INTEGER;"
          "ALTER TABLE executions ADD COLUMN sum INTEGER;"
          "ALTER TABLE events ADD COLUMN sum INTEGER;"
          "ALTER TABLE documents ADD COLUMN sum INTEGER;" BY_HAND("sessions", "seq")
              BY_HAND("sandboxes", "seq") BY_HAND("executions", "seq") BY_HAND("events", "sequence")
                  BY_HAND("documents", "seq"),

    /* The history of an owner, without scanning sessions that are not ended. */
    [5] = "CREATE INDEX sessions_ended ON sessions (owner) WHERE state = 'ended';",

    /* Which ended sessions have a label, and how many there are: see labels.c. The lists derive
     * from the records, even after changes by hand. */
    [6] = "CREATE TABLE ended_lists ("
          "  id INTEGER PRIMARY KEY, scope TEXT, name TEXT, value TEXT, sessions INTEGER,"
          "  UNIQUE (scope, name, value));"
          "CREATE INDEX ended_lists_empty ON ended_lists (id) WHERE sessions <= 0;"
          "CREATE TABLE ended_entries (list INTEGER, session INTEGER, PRIMARY KEY (list, session))"
          "  WITHOUT ROWID;"
          "CREATE VIEW ended_labels (session, scope, name, value) AS"
          "  SELECT seq, '=' || owner, '', '' FROM sessions WHERE state = 'ended' UNION ALL"
          "  SELECT seq, '*', '', '' FROM sessions WHERE state = 'ended' UNION ALL"
          "  SELECT seq, '=' || owner, label.key, label.value" LABELS_OF_ENDED " UNION ALL"
          "  SELECT seq, '*', label.key, label.value" LABELS_OF_ENDED ";"
          "CREATE INDEX sessions_kept_for_ever ON sessions (seq) WHERE " SESSION_KEPT_FOR_EVER ";"
          "INSERT INTO meta VALUES ('lists_stale', 1);" LISTS_BY_HAND("INSERT")
              LISTS_BY_HAND("DELETE") LISTS_BY_HAND("UPDATE"),

    /* A sandbox is known by a text that only its backend reads, here that of native and direct:
     * they were all there were. Without a sum: the record is another one now. */
    [7] = "ALTER TABLE sandboxes ADD COLUMN handle TEXT;"
          "UPDATE sandboxes SET sum = NULL, handle = iif(pid > 0,"
          "  pid || ':' || start_time || ':' || slot, '');"
          "ALTER TABLE sandboxes DROP COLUMN pid;"
          "ALTER TABLE sandboxes DROP COLUMN start_time;"
          "ALTER TABLE sandboxes DROP COLUMN slot;",

    /* Keys of sessions are claimed, and unique by that: the database refuses none any more. */
    [8] = "DROP INDEX sessions_live_key;"
          "CREATE INDEX sessions_live_key ON sessions (key, owner)"
          "  WHERE key <> '' AND state <> 'ended';"
          "ALTER TABLE documents ADD COLUMN version INTEGER;"
          "ALTER TABLE sessions ADD COLUMN node TEXT;"
          "ALTER TABLE sandboxes ADD COLUMN node TEXT;",
};

_Static_assert(ARRAY_LENGTH(migrations) == STORE_SCHEMA_VERSION + 1, "a migration is missing");

const char *schema_migration(int version)
{
    return migrations[version];
}

static int read_pragma(sqlite3 *handle, const char *path, const char *sql, int *out_value,
                       struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(handle, sql, -1, &statement, NULL);

    if (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        *out_value = sqlite3_column_int(statement, 0);
        code = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return code == SQLITE_OK ? 0 : sqlite_fail(handle, path, code, err, "read its header");
}

/* A database that is not empty must have our application_id, regardless of its tables. */
static int check_is_ours(sqlite3 *handle, const char *path, int version, struct error *err)
{
    int application = 0;
    int tables = 0;

    if (read_pragma(handle, path, "PRAGMA application_id", &application, err) < 0 ||
        read_pragma(handle, path, "SELECT count(*) FROM sqlite_schema", &tables, err) < 0)
        return -1;
    if (application == STORE_APPLICATION_ID || (application == 0 && version == 0 && tables == 0))
        return 0;
    error_named(err, ERR_INVALID, "store_foreign",
                "%s is an SQLite database, but not one of Sandglass", path);
    return error_hint(err, "choose another state directory, or move the file away");
}

static int refuse_newer(const char *path, int version, struct error *err)
{
    error_named(err, ERR_INVALID, "store_newer",
                "%s has schema version %d, and this program knows versions up to %d", path, version,
                STORE_SCHEMA_VERSION);
    return error_hint(err, "a newer sandglass has used it: run that version, or restore the backup "
                           "from before the upgrade");
}

static int run_migrations(sqlite3 *handle, const char *path, int version, struct error *err)
{
    char stamp[96];

    while (version < STORE_SCHEMA_VERSION) {
        version++;
        if (sqlite_exec(handle, path, migrations[version], err) < 0)
            return error_wrap(err, "migrate to schema version %d", version);
    }
    snprintf(stamp, sizeof(stamp), "PRAGMA user_version = %d; PRAGMA application_id = %d", version,
             STORE_APPLICATION_ID);
    if (sqlite_exec(handle, path, stamp, err) < 0)
        return -1;
    return sqlite_exec(handle, path, "COMMIT", err);
}

int schema_migrate(sqlite3 *handle, const char *path, int *out_before, struct error *err)
{
    int version = 0;

    if (read_pragma(handle, path, "PRAGMA user_version", &version, err) < 0 ||
        check_is_ours(handle, path, version, err) < 0)
        return -1;
    if (version < 0 || version > STORE_SCHEMA_VERSION)
        return refuse_newer(path, version, err);
    *out_before = version;
    if (version == STORE_SCHEMA_VERSION)
        return 0;
    if (sqlite_exec(handle, path, "BEGIN IMMEDIATE", err) < 0)
        return -1;
    if (run_migrations(handle, path, version, err) < 0) {
        (void)sqlite3_exec(handle, "ROLLBACK", NULL, NULL, NULL);
        return -1;
    }
    return 0;
}
