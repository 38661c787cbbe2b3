/* Seam 3: what a profiler is told while the program runs.
 *
 * A tracer is one constant of struct tri_tracer. It includes this file and base/, and never calls
 * upward. Only core/trace.c calls it. */
#ifndef TRI_TRACER_H
#define TRI_TRACER_H

#include <stdbool.h>
#include <stdint.h>

/* Texts live through the call only. Any thread; no member waits. */
struct tri_tracer {
    /* Does a profiler listen? Asked once, before any other call. */
    bool (*begin)(void);
    /* Name a category, which is not 0. */
    void (*name)(uint32_t category, const char *text);
    /* Begin and end a range of the calling thread; ranges nest. `bytes`: its payload; 0: it has
     * none. */
    void (*push)(const char *text, uint32_t category, uint64_t bytes);
    void (*pop)(void);
};

/* The tracer of this build, or NULL: CMake chooses between the files of nvtx/. */
extern const struct tri_tracer *const tri_tracer;

#endif
