/* A program that crashes says where. */
#ifndef TRI_TESTS_CRASH_H
#define TRI_TESTS_CRASH_H

/* From now on a fatal signal that nobody handles, and abort(), print the thread's stack to standard
 * error first; addr2line -e PROGRAM turns its offsets into lines. */
void crash_prints_stack(void);

#endif
