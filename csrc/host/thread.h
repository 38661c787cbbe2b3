/* Threads of the library's own. */
#ifndef TRI_HOST_THREAD_H
#define TRI_HOST_THREAD_H

#include <pthread.h>

/* A thread that takes none of the program's signals. Returns what pthread_create returns. */
int tri_thread_start(pthread_t *out, void *(*function)(void *), void *argument);

#endif
