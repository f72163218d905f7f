/* The pantile command: picks the command that the first argument names, and prints help.
 * Of operators it knows the name, to find the help that covers them. */
#include <pantile/pantile.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "operators.h"

static const struct command demo_command = {
    "demo", "HSTU over real histories, NSA over 64K keys, next to the naive way", NULL, demo_main};

static const struct command *const commands[] = {&info_command,   &demo_command,  &run_command,
                                                 &check_command,  &bench_command, &replay_command,
                                                 &compare_command};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

int complain(const char *sentence) {
    fprintf(stderr, "pantile: %s\n", sentence);
    return EXIT_REFUSED;
}

static void print_usage(FILE *f) {
    fputs("usage: pantile COMMAND [ARGUMENTS]\n\n", f);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-14s %s\n", commands[i]->name, commands[i]->summary);
    fputs("  help COMMAND   how to use a command\n", f);
    for (int i = 0; families[i]; i++)
        fprintf(f, "  help %-9s the words of %s lines\n", families[i]->name, families[i]->name);
    fputs("  --version\n", f);
}

static const struct command *find_command(const char *name) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static int print_command_help(const struct command *command) {
    char name[16], option[] = "--help";
    char *argv[] = {name, option, NULL};
    if (command->help) {
        fputs(command->help, stdout);
        return EXIT_PASS;
    }
    snprintf(name, sizeof name, "%s", command->name);
    return command->main(2, argv);
}

static int unknown_command(const char *name) {
    char sentence[128];
    snprintf(sentence, sizeof sentence, "'%.40s': unknown command, see 'pantile help'", name);
    return complain(sentence);
}

/* The words of the lines of an operator or a family of them, or NULL. */
static const char *find_topic(const char *name) {
    const struct operator* op = find_operator(name);
    const struct family *family = find_family(op ? op->help : name);
    return family ? family->help : NULL;
}

static int print_help(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stdout);
        return EXIT_PASS;
    }
    const char *topic = find_topic(argv[1]);
    if (topic) {
        fputs(topic, stdout);
        return EXIT_PASS;
    }
    const struct command *command = find_command(argv[1]);
    return command ? print_command_help(command) : unknown_command(argv[1]);
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_REFUSED;
    }
    if (strcmp(argv[1], "help") == 0 || is_help(argv[1])) return print_help(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0) {
        printf("pantile %s\n", ptl_version());
        return EXIT_PASS;
    }
    const struct command *command = find_command(argv[1]);
    if (!command) return unknown_command(argv[1]);
    if (argc > 2 && is_help(argv[2])) return print_command_help(command);
    return command->main(argc - 1, argv + 1);
}

int main(int argc, char **argv) {
    const int status = dispatch(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) return complain("stdout: cannot be written");
    return status;
}
