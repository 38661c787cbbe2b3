/* The debug switch: does the log tell where memory is placed, and a dump list the blocks? */
#ifndef TRI_BASE_DEBUG_H
#define TRI_BASE_DEBUG_H

#include <stdbool.h>

/* TRIBUTARY_DEBUG of the environment, read once, until the program sets it. Any thread; never in a
 * hot path. */
bool tri_debug(void);
void tri_debug_set(bool wanted);

#endif
