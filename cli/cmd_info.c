/* pantile info: the version, the CPU, and what a default context would use here. */
#include <pantile/pantile.h>
#include <stdio.h>

#include "commands.h"
#include "cpu_name.h"
#include "runner.h"

static const char help[] =
    "usage: pantile info\n"
    "\n"
    "Prints the version, the CPU, the kernel levels that it can run, and the level, threads and\n"
    "executor of a default context. PTL_CPU=LEVEL and PTL_NUM_THREADS=N limit them.\n";

static int info_main(int argc, char **argv) {
    char sentence[512], cpu[128];
    struct refusal refusal = {sentence, sizeof sentence};
    struct ptl_context_info info = {.struct_size = sizeof info};
    const struct problem defaults = {0};
    struct ptl_context *ctx;
    if (argc > 1) {
        refuse(&refusal, "'%.60s': info takes no arguments", argv[1]);
        return complain(sentence);
    }
    if (!open_context(&defaults, &ctx, &refusal)) return complain(sentence);
    ptl_context_get_info(ctx, &info);
    ptl_context_destroy(ctx);

    printf("pantile %s\n", ptl_version());
    printf("cpu: %s\n", cpu_name(cpu));
    fputs("levels:", stdout);
    for (int isa = PTL_ISA_SCALAR; ptl_isa_name((enum ptl_isa)isa); isa++)
        if (ptl_isa_available((enum ptl_isa)isa)) printf(" %s", ptl_isa_name((enum ptl_isa)isa));
    printf("\nlevel: %s\nthreads: %d\nexecutor: %s\n", ptl_isa_name(info.isa),
           (int)info.num_threads, executor_name(info.executor));
    return EXIT_PASS;
}

const struct command info_command = {"info", "what runs here: version, CPU, level, threads", help,
                                     info_main};
