/* Threads of the library's own. */
#ifndef TRI_BASE_THREAD_H
#define TRI_BASE_THREAD_H

#include <pthread.h>

/* Start a thread that takes no signals: they are for the program's own threads. Returns what
 * pthread_create returns. */
int tri_thread_start(pthread_t *out, void *(*function)(void *argument), void *argument);

#endif
