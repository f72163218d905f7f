/* pantile run: computes one line and keeps the arrays that it names as outputs. */
#include <stdio.h>

#include "arrays.h"
#include "commands.h"
#include "npy.h"
#include "runner.h"

static const char help[] =
    "usage: pantile run LINE\n"
    "\n"
    "Computes the operator that LINE describes. key=@file.npy is an array, out=@file.npy where "
    "the\n"
    "result goes; 4-axis q, k and v are the dense layout. For example\n"
    "\n"
    "  pantile run hstu q=@q.npy k=@k.npy v=@v.npy seq_offsets_q=@o.npy num_targets=@t.npy \\\n"
    "      alpha=0.125 scaling_seqlen=4096 out=@out.npy\n"
    "\n"
    "A line without arrays is a generated problem, as for check and bench. 'pantile help hstu' "
    "lists\n"
    "the words. PTL_VERBOSE=1 prints the call, as a line, and its time.\n";

static bool run(struct words *w, struct refusal *r) {
    struct problem p;
    struct output out;
    struct ptl_context_info info;
    char text[96];
    if (!problem_open(&p, &out, w, r)) return false;
    const bool ok = run_problem(&p, &info, r) && output_write(&out, &p, r);
    if (ok && out.path) printf("%s: %s float32\n", out.path, shape_text(&p.hstu.out, text));
    if (ok && !out.path) puts("computed; out=@file.npy keeps the result");
    problem_destroy(&p);
    output_free(&out);
    return ok;
}

static int run_main(int argc, char **argv) {
    char sentence[1024];
    struct refusal refusal = {sentence, sizeof sentence};
    struct words w;
    if (!words_of_arguments(&w, argc - 1, argv + 1, &refusal)) return complain(sentence);
    const bool ok = run(&w, &refusal);
    words_free(&w);
    return ok ? EXIT_PASS : complain(sentence);
}

const struct command run_command = {"run", "compute over .npy files", help, run_main};
