/* pantile run: computes one line and keeps the arrays that it names as outputs. */
#include <stdio.h>

#include "call.h"
#include "commands.h"
#include "npy.h"
#include "runner.h"

static const char help[] =
    "usage: pantile run LINE\n"
    "\n"
    "Computes the operator that LINE describes. key=@file.npy is an array, read or, where it names "
    "an\n"
    "output, written; an output that is named is wanted. For example\n"
    "\n"
    "  pantile run hstu q=@q.npy k=@k.npy v=@v.npy seq_offsets_q=@o.npy num_targets=@t.npy \\\n"
    "      alpha=0.125 scaling_seqlen=4096 out=@out.npy\n"
    "  pantile run hstu_backward q=@q.npy k=@k.npy v=@v.npy seq_offsets_q=@o.npy "
    "scaling_seqlen=4096 \\\n"
    "      dout=@dout.npy dq=@dq.npy dk=@dk.npy dv=@dv.npy\n"
    "  pantile run jagged_to_padded x=@x.npy x.offsets=@o.npy out=@padded.npy\n"
    "  pantile run nsa_forward q=@q.npy k=@k.npy v=@v.npy gates=@g.npy seq_offsets_q=list:0,900 "
    "\\\n"
    "      out=@out.npy idx=@idx.npy\n"
    "\n"
    "A line without arrays to read is a generated problem, as for check and bench. The words are\n"
    "listed by 'pantile help hstu' (hstu, hstu_backward, hstu_kv_append), 'pantile help jagged'\n"
    "(jagged_to_padded, padded_to_jagged, concat_jagged, split_jagged, position_time,\n"
    "position_time_backward) and 'pantile help nsa' (nsa_compress, nsa_append,\n"
    "nsa_compressed_attention, nsa_select, nsa_attend, nsa_combine, nsa_forward, nsa_decode,\n"
    "attention). PTL_VERBOSE=1 prints hstu, nsa and attention calls, as lines, and their times.\n";

static void print_outputs(const struct call *c) {
    char text[96];
    for (int i = 0; i < c->n_outputs; i++) {
        const struct ptl_tensor *t = call_tensor(c, c->outputs[i].tensor);
        printf("%s: %s %s\n", c->outputs[i].path, shape_text(t, text), type_text(t->dtype));
    }
    if (c->n_outputs == 0) printf("computed; %s=@file.npy keeps the result\n", c->op->result);
}

static bool run(struct words *w, struct refusal *r) {
    struct call c;
    struct ptl_context_info info;
    if (!call_open(&c, w, r)) return false;
    const bool ok = run_call(&c, &info, r) && call_write(&c, r);
    if (ok) print_outputs(&c);
    call_close(&c);
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
