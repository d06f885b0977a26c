/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/completion.h"

#include "cli/cli.h"

#include <string.h>

/* A walk over all commands: those of a group come with their parent. */
typedef void visit_fn(struct buffer *script, const struct command *parent,
                      const struct command *command);

static void visit_commands(struct buffer *script, visit_fn *visit)
{
    for (const struct command *const *top = commands; *top; top++) {
        visit(script, NULL, *top);
        for (const struct command *const *sub = (*top)->subcommands; sub && *sub; sub++)
            visit(script, *top, *sub);
    }
}

static void put_names(struct buffer *script, const struct command *const *table)
{
    for (const struct command *const *command = table; *command; command++)
        buffer_appendf(script, "%s%s", command == table ? "" : " ", (*command)->name);
}

/* Inside single quotes; `also` is a character that the shell's own syntax needs escaped. */
static void put_quoted(struct buffer *script, const char *text, const char *also)
{
    for (; *text; text++) {
        if (*text == '\'')
            buffer_append_text(script, "'\\'");
        else if (strchr(also, *text))
            buffer_append_byte(script, '\\');
        buffer_append_byte(script, (uint8_t)*text);
    }
}

#define for_each_option(option, command)                                       \
    for (const struct option_set *set_ = (command)->sets; set_->rows; set_++)  \
        for (const struct option *option = set_->rows; option->name; option++) \
            if (option->help)

/* The values of an option or an operand that `sandglass completion values` knows; NULL: none. */
static const char *option_values(const struct option *option)
{
    if (option->kind == OPTION_SESSION)
        return "sessions";
    if (strcmp(option->name, "template") == 0)
        return "templates";
    return strcmp(option->name, "set") == 0 ? "settings" : NULL;
}

static const char *operand_name(const struct command *command)
{
    static const char *const names[] = {
        [OPERAND_SESSION] = "session",
        [OPERAND_SESSIONS] = "sessions",
        [OPERAND_EXECUTION] = "execution",
        [OPERAND_PLACE] = "place",
        [OPERAND_TEMPLATE] = "template",
        [OPERAND_FILE] = "file",
        [OPERAND_WORDS] = NULL,
    };

    return names[command->operand];
}

/* --- bash ------------------------------------------------------------------------------------ */

static void bash_command(struct buffer *script, const struct command *parent,
                         const struct command *command)
{
    buffer_appendf(script, "    '%s%s%s')\n        options='", parent ? parent->name : "",
                   parent ? " " : "", command->name);
    for_each_option(option, command)
    {
        buffer_appendf(script, "--%s ", option->name);
        if (option->letter)
            buffer_appendf(script, "-%c ", option->letter);
    }
    buffer_append_text(script, "'\n");
    if (command->subcommands) {
        buffer_append_text(script, "        words='");
        put_names(script, command->subcommands);
        buffer_append_text(script, "'\n");
    } else if (command->operand == OPERAND_WORDS) {
        buffer_appendf(script, "        words='%s'\n", command->words);
    } else if (operand_name(command)) {
        buffer_appendf(script, "        kind=%s\n", operand_name(command));
    }
    buffer_append_text(script, "        ;;\n");
}

/* Options that take a value, so that the value is not taken for an operand. */
static void bash_valued(struct buffer *script, const struct command *parent,
                        const struct command *command)
{
    const char *group = parent ? parent->name : "";
    const char *gap = parent ? " " : "";
    bool is_first = true;

    for_each_option(option, command)
    {
        if (option->kind == OPTION_FLAG)
            continue;
        buffer_appendf(script, "%s'%s%s%s --%s'", is_first ? "            " : "|", group, gap,
                       command->name, option->name);
        if (option->letter)
            buffer_appendf(script, "|'%s%s%s -%c'", group, gap, command->name, option->letter);
        is_first = false;
    }
    if (!is_first)
        buffer_append_text(script, ") skip=1 ;;\n");
}

static void bash_choices(struct buffer *script, const struct command *parent,
                         const struct command *command)
{
    for_each_option(option, command)
    {
        const char *values = option_values(option);

        if (!option->choices && !values)
            continue;
        buffer_appendf(script, "    '%s%s%s --%s'", parent ? parent->name : "", parent ? " " : "",
                       command->name, option->name);
        if (option->letter)
            buffer_appendf(script, "|'%s%s%s -%c'", parent ? parent->name : "", parent ? " " : "",
                           command->name, option->letter);
        if (option->choices)
            buffer_appendf(script, ") words='%s'; options=; kind= ;;\n", option->choices);
        else
            buffer_appendf(script, ") kind=%s; options=; operands=0 ;;\n", values);
    }
}

/* The words of the line, from its text: bash itself splits them at colons and equal signs too. */
static const char bash_head[] =
    "# bash completion of sandglass\n"
    "_sandglass_values() {\n"
    "    sandglass completion values \"$@\" 2>/dev/null\n"
    "}\n"
    "_sandglass() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local path= options= words= kind= word i session= skip= operands=0\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        [ -n \"$skip\" ] && { skip=; continue; }\n"
    "        case $word in\n"
    "        --) return ;;\n"
    "        -*)\n"
    "            case \"$path $word\" in\n";

static const char bash_operands[] = "            esac\n"
                                    "            ;;\n"
                                    "        *)\n"
                                    "            case $path in\n"
                                    "            '') path=$word ;;\n";

static const char bash_tail[] =
    "    esac\n"
    "    case $current in\n"
    "    -*) words=$options ;;\n"
    "    *)\n"
    "        case $kind in\n"
    "        session) [ $operands = 0 ] && words=$(_sandglass_values sessions) ;;\n"
    "        sessions|templates|settings) words=$(_sandglass_values $kind) ;;\n"
    "        template) words=$(_sandglass_values templates) ;;\n"
    "        execution)\n"
    "            case $operands in\n"
    "            0) words=$(_sandglass_values sessions) ;;\n"
    "            1) words=$(_sandglass_values executions \"$session\") ;;\n"
    "            esac\n"
    "            ;;\n"
    "        place) _sandglass_place; return ;;\n"
    "        file) compopt -o default 2>/dev/null ;;\n"
    "        esac\n"
    "        [ \"$kind\" = settings ] && compopt -o nospace 2>/dev/null\n"
    "        ;;\n"
    "    esac\n"
    "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
    "}\n"
    "# A file here or SESSION:PATH. Bash splits words at the colon, so what stands before it "
    "goes.\n"
    "_sandglass_place() {\n"
    "    local whole=${COMP_LINE:0:COMP_POINT} each IFS=$'\\n'\n"
    "    whole=${whole##* }\n"
    "    [ -z \"$COMP_LINE\" ] && whole=$current\n"
    "    compopt -o nospace 2>/dev/null\n"
    "    case $whole in\n"
    "    *:*) COMPREPLY=($(compgen -W \"$(_sandglass_values files \"$whole\")\" -- \"$whole\")) "
    ";;\n"
    "    *)\n"
    "        compopt -o default 2>/dev/null\n"
    "        COMPREPLY=($(compgen -S : -W \"$(_sandglass_values sessions)\" -- \"$whole\") "
    "$(compgen -f -- \"$whole\"))\n"
    "        ;;\n"
    "    esac\n"
    "    case $COMP_WORDBREAKS in\n"
    "    *:*)\n"
    "        case $whole in\n"
    "        *:*) for i in \"${!COMPREPLY[@]}\"; do COMPREPLY[i]=${COMPREPLY[i]#\"${whole%:*}:\"}; "
    "done ;;\n"
    "        esac\n"
    "        ;;\n"
    "    esac\n"
    "}\n"
    "complete -F _sandglass sandglass\n";

void completion_bash(struct buffer *script)
{
    buffer_append_text(script, bash_head);
    visit_commands(script, bash_valued);
    buffer_append_text(script, bash_operands);
    for (const struct command *const *top = commands; *top; top++)
        if ((*top)->subcommands)
            buffer_appendf(script, "            %s) path=\"$path $word\" ;;\n", (*top)->name);
    buffer_append_text(script, "            *)\n"
                               "                [ $operands = 0 ] && session=$word\n"
                               "                operands=$((operands + 1))\n"
                               "                ;;\n"
                               "            esac\n"
                               "            ;;\n"
                               "        esac\n"
                               "    done\n"
                               "    case $path in\n"
                               "    '') words='");
    put_names(script, commands);
    buffer_append_text(script, "'; options='--url --json --help --version' ;;\n");
    visit_commands(script, bash_command);
    buffer_append_text(script, "    esac\n"
                               "    case \"$path $previous\" in\n");
    visit_commands(script, bash_choices);
    buffer_append_text(script, bash_tail);
}

/* --- zsh ------------------------------------------------------------------------------------- */

static void zsh_option(struct buffer *script, const struct option *option)
{
    const char *repeated = option->kind == OPTION_LIST || option->kind == OPTION_PAIRS ? "*" : "";

    buffer_append_text(script, " \\\n            ");
    if (option->letter)
        buffer_appendf(script, "'%s'{-%c,--%s}'[", repeated, option->letter, option->name);
    else
        buffer_appendf(script, "'%s--%s[", repeated, option->name);
    put_quoted(script, option->help, "[]:");
    buffer_append_byte(script, ']');
    if (option->kind != OPTION_FLAG) {
        buffer_append_byte(script, ':');
        put_quoted(script, option->value, "[]:");
        buffer_append_byte(script, ':');
    }
    if (option->choices)
        buffer_appendf(script, "(%s)", option->choices);
    else if (option_values(option))
        buffer_appendf(script, "{_sandglass_values %s}", option_values(option));
    buffer_append_byte(script, '\'');
}

static void zsh_operand(struct buffer *script, const struct command *command)
{
    static const char execution[] = "'1:session:{_sandglass_values sessions}' "
                                    "'2:execution:{_sandglass_values executions $words[2]}'";
    static const char *const specs[] = {
        [OPERAND_SESSION] = "'1:session:{_sandglass_values sessions}'",
        [OPERAND_SESSIONS] = "'*:session:{_sandglass_values sessions}'",
        [OPERAND_EXECUTION] = execution,
        [OPERAND_PLACE] = "'*:place:_sandglass_places'",
        [OPERAND_TEMPLATE] = "'*:template:{_sandglass_values templates}'",
        [OPERAND_FILE] = "'*:file:_files'",
        [OPERAND_COMMAND] = "'*::command:_normal'",
        [OPERAND_WORDS] = NULL,
    };
    const char *spec = specs[command->operand];

    if (command->operand == OPERAND_WORDS)
        buffer_appendf(script, " \\\n            '*: :(%s)'", command->words);
    else if (spec)
        buffer_appendf(script, " \\\n            %s", spec);
}

static void zsh_names(struct buffer *script, const struct command *const *table)
{
    buffer_append_text(script, "names=(");
    for (; *table; table++) {
        buffer_appendf(script, "\n            '%s:", (*table)->name);
        put_quoted(script, (*table)->summary, ":");
        buffer_append_byte(script, '\'');
    }
    buffer_append_text(script, ")\n        _describe command names\n");
}

static void zsh_command(struct buffer *script, const struct command *parent,
                        const struct command *command)
{
    buffer_appendf(script, "    '%s%s%s')\n        ", parent ? parent->name : "", parent ? " " : "",
                   command->name);
    if (command->subcommands) {
        zsh_names(script, command->subcommands);
    } else {
        buffer_append_text(script, "_arguments -S");
        for_each_option(option, command)
        {
            zsh_option(script, option);
        }
        zsh_operand(script, command);
        buffer_append_byte(script, '\n');
    }
    buffer_append_text(script, "        ;;\n");
}

void completion_zsh(struct buffer *script)
{
    buffer_append_text(script, "#compdef sandglass\n"
                               "_sandglass_values() {\n"
                               "    local -a found\n"
                               "    found=(${(f)\"$(sandglass completion values $@ "
                               "2>/dev/null)\"})\n"
                               "    compadd -S '' -a found\n"
                               "}\n"
                               "_sandglass_places() {\n"
                               "    local -a found\n"
                               "    if [[ $PREFIX == *:* ]]; then\n"
                               "        _sandglass_values files $PREFIX\n"
                               "        return\n"
                               "    fi\n"
                               "    found=(${(f)\"$(sandglass completion values sessions "
                               "2>/dev/null)\"})\n"
                               "    compadd -S : -a found\n"
                               "    _files\n"
                               "}\n"
                               "_sandglass() {\n"
                               "    local -a names\n"
                               "    local path_words=$words[2]\n"
                               "    if ((CURRENT == 2)); then\n        ");
    zsh_names(script, commands);
    buffer_append_text(script, "        return\n    fi\n    case $words[2] in\n    ");
    for (const struct command *const *top = commands; *top; top++)
        if ((*top)->subcommands)
            buffer_appendf(script, "%s|", (*top)->name);
    buffer_append_text(script, "'')\n"
                               "        if ((CURRENT > 3)); then\n"
                               "            path_words=\"$words[2] $words[3]\"\n"
                               "            shift words; ((CURRENT--))\n"
                               "        fi\n"
                               "        ;;\n"
                               "    esac\n"
                               "    shift words; ((CURRENT--))\n"
                               "    case $path_words in\n");
    visit_commands(script, zsh_command);
    buffer_append_text(script, "    esac\n}\n_sandglass \"$@\"\n");
}

/* --- fish ------------------------------------------------------------------------------------ */

static void fish_condition(struct buffer *script, const struct command *parent,
                           const struct command *command)
{
    buffer_append_text(script, "complete -c sandglass -n '__fish_seen_subcommand_from ");
    if (parent)
        buffer_appendf(script, "%s; and __fish_seen_subcommand_from ", parent->name);
    buffer_appendf(script, "%s'", command->name);
}

static void fish_name(struct buffer *script, const struct command *parent,
                      const struct command *command)
{
    if (parent)
        fish_condition(script, NULL, parent);
    else
        buffer_append_text(script, "complete -c sandglass -n __fish_use_subcommand");
    buffer_appendf(script, " -a %s -d '", command->name);
    put_quoted(script, command->summary, "\\");
    buffer_append_text(script, "'\n");
}

static void fish_operand(struct buffer *script, const struct command *parent,
                         const struct command *command)
{
    static const char *const values[] = {
        [OPERAND_SESSION] = "-a '(sandglass completion values sessions 2>/dev/null)'",
        [OPERAND_SESSIONS] = "-a '(sandglass completion values sessions 2>/dev/null)'",
        [OPERAND_EXECUTION] = "-a '(sandglass completion values sessions 2>/dev/null)'",
        [OPERAND_PLACE] = "-F -a '(__sandglass_places)'",
        [OPERAND_TEMPLATE] = "-a '(sandglass completion values templates 2>/dev/null)'",
        [OPERAND_FILE] = "-F",
        [OPERAND_WORDS] = NULL,
    };

    if (command->operand == OPERAND_WORDS) {
        fish_condition(script, parent, command);
        buffer_appendf(script, " -a '%s'\n", command->words);
    } else if (values[command->operand]) {
        fish_condition(script, parent, command);
        buffer_appendf(script, " %s\n", values[command->operand]);
    }
}

static void fish_command(struct buffer *script, const struct command *parent,
                         const struct command *command)
{
    fish_name(script, parent, command);
    for_each_option(option, command)
    {
        fish_condition(script, parent, command);
        buffer_appendf(script, " -l %s", option->name);
        if (option->letter)
            buffer_appendf(script, " -s %c", option->letter);
        if (option->choices)
            buffer_appendf(script, " -xa '%s'", option->choices);
        else if (option_values(option))
            buffer_appendf(script, " -xa '(sandglass completion values %s 2>/dev/null)'",
                           option_values(option));
        else if (option->kind != OPTION_FLAG)
            buffer_append_text(script, " -r");
        buffer_append_text(script, " -d '");
        put_quoted(script, option->help, "\\");
        buffer_append_text(script, "'\n");
    }
    fish_operand(script, parent, command);
}

void completion_fish(struct buffer *script)
{
    buffer_append_text(script,
                       "function __sandglass_places\n"
                       "    set -l word (commandline -ct)\n"
                       "    if string match -q '*:*' -- $word\n"
                       "        sandglass completion values files $word 2>/dev/null\n"
                       "    else\n"
                       "        for each in (sandglass completion values sessions 2>/dev/null)\n"
                       "            echo $each:\n"
                       "        end\n"
                       "    end\n"
                       "end\n"
                       "complete -c sandglass -f\n");
    visit_commands(script, fish_command);
}
