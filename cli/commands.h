/* The commands of `pantile`, one file each (cmd_*.c, demo.c). main.c chooses among them. */
#ifndef PTL_COMMANDS_H
#define PTL_COMMANDS_H

enum { EXIT_PASS = 0, EXIT_MISMATCH = 1, EXIT_REFUSED = 2 };

struct command {
    const char *name;
    const char *summary;                /* one line of the usage */
    const char *help;                   /* NULL: the command prints its own for --help */
    int (*main)(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */
};

extern const struct command info_command, run_command, check_command, bench_command, replay_command,
    compare_command;

int demo_main(int argc, char **argv);

extern const char hstu_help[];   /* the words of hstu lines */
extern const char jagged_help[]; /* those of jagged lines */
extern const char nsa_help[];    /* and of nsa and attention lines */

/* Prints "pantile: " and the sentence on stderr; returns EXIT_REFUSED. */
int complain(const char *sentence);

#endif
