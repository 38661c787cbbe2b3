/* A lock for rooms that see no threads; never held during a wait. It holds nothing to free. */
#ifndef TRI_BASE_LOCK_H
#define TRI_BASE_LOCK_H

#include <pthread.h>

struct tri_lock {
    pthread_mutex_t mutex;
};
#define TRI_LOCK_INIT {PTHREAD_MUTEX_INITIALIZER}

/* For one that has no static initialiser. */
static inline void tri_lock_init(struct tri_lock *lock)
{
    *lock = (struct tri_lock)TRI_LOCK_INIT;
}

static inline void tri_lock(struct tri_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
}

static inline void tri_unlock(struct tri_lock *lock)
{
    (void)pthread_mutex_unlock(&lock->mutex);
}

#endif
