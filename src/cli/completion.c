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

#define for_each_option(option, command)                                      \
    for (const struct option_set *set_ = (command)->sets; set_->rows; set_++) \
        for (const struct option *option = set_->rows; option->name; option++)

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
    } else if (command->operand == OPERAND_SESSION) {
        buffer_append_text(script, "        kind=session\n");
    } else if (command->operand == OPERAND_FILE) {
        buffer_append_text(script, "        kind=file\n");
    } else if (command->operand == OPERAND_WORDS) {
        buffer_appendf(script, "        words='%s'\n", command->words);
    }
    buffer_append_text(script, "        ;;\n");
}

static void bash_choices(struct buffer *script, const struct command *parent,
                         const struct command *command)
{
    for_each_option(option, command)
    {
        if (option->choices)
            buffer_appendf(script, "    '%s%s%s --%s') words='%s'; options= ;;\n",
                           parent ? parent->name : "", parent ? " " : "", command->name,
                           option->name, option->choices);
    }
}

void completion_bash(struct buffer *script)
{
    buffer_append_text(
        script, "# bash completion of sandglass\n"
                "_sandglass() {\n"
                "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
                "    local path= options= words= kind= word i\n"
                "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                "        word=${COMP_WORDS[i]}\n"
                "        case $word in\n"
                "        --) return ;;\n"
                "        -*) ;;\n"
                "        *)\n"
                "            case $path in\n"
                "            '') path=$word ;;\n");
    for (const struct command *const *top = commands; *top; top++)
        if ((*top)->subcommands)
            buffer_appendf(script, "            %s) path=\"$path $word\" ;;\n", (*top)->name);
    buffer_append_text(script, "            esac\n"
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
    buffer_append_text(script,
                       "    esac\n"
                       "    case $current in\n"
                       "    -*) words=$options ;;\n"
                       "    *)\n"
                       "        [ \"$kind\" = session ] && words=$(sandglass ls -q 2>/dev/null)\n"
                       "        [ \"$kind\" = file ] && compopt -o default\n"
                       "        ;;\n"
                       "    esac\n"
                       "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
                       "}\n"
                       "complete -F _sandglass sandglass\n");
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
    buffer_append_byte(script, '\'');
}

static void zsh_operand(struct buffer *script, const struct command *command)
{
    switch (command->operand) {
    case OPERAND_NONE:
        break;
    case OPERAND_SESSION:
        buffer_append_text(script, " \\\n            '*:session:_sandglass_sessions'");
        break;
    case OPERAND_FILE:
        buffer_append_text(script, " \\\n            '*:file:_files'");
        break;
    case OPERAND_COMMAND:
        buffer_append_text(script, " \\\n            '*::command:_normal'");
        break;
    case OPERAND_WORDS:
        buffer_appendf(script, " \\\n            '*: :(%s)'", command->words);
        break;
    }
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
                               "_sandglass_sessions() {\n"
                               "    local -a ids\n"
                               "    ids=(${(f)\"$(sandglass ls -q 2>/dev/null)\"})\n"
                               "    compadd -a ids\n"
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
        else if (option->kind != OPTION_FLAG)
            buffer_append_text(script, " -r");
        buffer_append_text(script, " -d '");
        put_quoted(script, option->help, "\\");
        buffer_append_text(script, "'\n");
    }
    if (command->operand == OPERAND_SESSION) {
        fish_condition(script, parent, command);
        buffer_append_text(script, " -a '(sandglass ls -q 2>/dev/null)'\n");
    } else if (command->operand == OPERAND_WORDS) {
        fish_condition(script, parent, command);
        buffer_appendf(script, " -a '%s'\n", command->words);
    } else if (command->operand == OPERAND_FILE) {
        fish_condition(script, parent, command);
        buffer_append_text(script, " -F\n");
    }
}

void completion_fish(struct buffer *script)
{
    buffer_append_text(script, "complete -c sandglass -f\n");
    visit_commands(script, fish_command);
}
