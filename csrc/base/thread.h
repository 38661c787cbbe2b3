/* The library's own threads. */
#ifndef TRI_BASE_THREAD_H
#define TRI_BASE_THREAD_H

#include <pthread.h>

/* Start a thread that blocks all signals, which are for the program's own threads. Returns what
 * pthread_create returns. */
int tri_thread_start(pthread_t *out, void *(*function)(void *argument), void *argument);

#endif
