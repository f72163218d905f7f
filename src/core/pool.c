/* A pool of threads for one caller at a time.
 *
 * A run publishes a job and a new round number, and wakes the threads. A thread joins the round
 * under the lock and takes the next slot; the caller works as slot 0. When the caller's own share
 * returns, no work is left to draw, so it closes the round: a thread that wakes later finds nothing
 * to join, and the caller waits only for those inside. So a small job never waits for a sleeping
 * thread.
 *
 * After a fork the child has none of the threads: the fork counter tells, and the pool starts
 * anew. */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "message.h"

#if defined(__x86_64__)
#define cpu_relax() __builtin_ia32_pause()
#else
#define cpu_relax() atomic_signal_fence(memory_order_seq_cst)
#endif

/* How long a waiting thread polls before it parks: about 20 us, some 100 times the cost of the
 * poll's shared read and of the order of one futex wake-up, so that back-to-back calls find threads
 * awake. */
enum { SPINS = 1000, MAX_THREADS = 1023 };

struct ptl_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake; /* a new round, or the end */
    pthread_cond_t idle; /* the last thread left the round */
    atomic_uint round;   /* written under the lock; polled without it */
    atomic_int inside;   /* threads in the open round, the caller not counted; likewise */
    bool open, stop;
    int n_workers, next_slot;
    ptl_worker_fn fn;
    void *job;
    int n_threads; /* started so far */
    unsigned forks;
    pthread_t threads[MAX_THREADS];
};

static atomic_uint fork_count;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void count_fork(void) {
    atomic_fetch_add(&fork_count, 1);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, count_fork);
}

static void init_sync(struct ptl_pool *pool) {
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pool->forks = atomic_load(&fork_count);
    pool->n_threads = 0;
    pool->open = pool->stop = false;
    atomic_store(&pool->inside, 0);
}

static void *thread_main(void *arg) {
    struct ptl_pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    unsigned seen = atomic_load(&pool->round) - 1; /* a round may be open already: join it */
    for (;;) {
        if (atomic_load(&pool->round) == seen && !pool->stop) {
            pthread_mutex_unlock(&pool->lock);
            for (int i = 0; i < SPINS && atomic_load(&pool->round) == seen; i++) cpu_relax();
            pthread_mutex_lock(&pool->lock);
            while (atomic_load(&pool->round) == seen && !pool->stop)
                pthread_cond_wait(&pool->wake, &pool->lock);
        }
        if (pool->stop) break;
        seen = atomic_load(&pool->round);
        if (!pool->open || pool->next_slot >= pool->n_workers) continue;
        const int slot = pool->next_slot++;
        const ptl_worker_fn fn = pool->fn;
        void *job = pool->job;
        atomic_fetch_add(&pool->inside, 1);
        pthread_mutex_unlock(&pool->lock);
        fn(job, slot);
        pthread_mutex_lock(&pool->lock);
        if (atomic_fetch_sub(&pool->inside, 1) == 1) pthread_cond_signal(&pool->idle);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Signals go to the host's threads, never to ours. */
static void start_threads(struct ptl_pool *pool, int n_threads) {
    sigset_t all, before;
    if (n_threads > MAX_THREADS) n_threads = MAX_THREADS;
    if (pool->n_threads >= n_threads) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->n_threads < n_threads &&
           pthread_create(&pool->threads[pool->n_threads], NULL, thread_main, pool) == 0)
        pool->n_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

enum ptl_status ptl_pool_create(struct ptl_pool **pool) {
    pthread_once(&fork_once, watch_forks);
    *pool = calloc(1, sizeof **pool);
    if (!*pool) return ptl_fail(PTL_ERR_NOMEM, "context: no memory for the thread pool");
    init_sync(*pool);
    return PTL_OK;
}

void ptl_pool_run(struct ptl_pool *pool, int n_workers, ptl_worker_fn fn, void *job) {
    if (pool->forks != atomic_load(&fork_count)) init_sync(pool);
    start_threads(pool, n_workers - 1);

    pthread_mutex_lock(&pool->lock);
    pool->fn = fn;
    pool->job = job;
    pool->n_workers = n_workers;
    pool->next_slot = 1;
    pool->open = true;
    atomic_fetch_add(&pool->round, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);

    fn(job, 0);

    pthread_mutex_lock(&pool->lock);
    pool->open = false;
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < SPINS && atomic_load(&pool->inside) > 0; i++) cpu_relax();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->inside) > 0) pthread_cond_wait(&pool->idle, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void ptl_pool_destroy(struct ptl_pool *pool) {
    if (!pool) return;
    if (pool->forks == atomic_load(&fork_count)) { /* in a forked child there is nothing to join */
        pthread_mutex_lock(&pool->lock);
        pool->stop = true;
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
        for (int i = 0; i < pool->n_threads; i++) pthread_join(pool->threads[i], NULL);
        pthread_mutex_destroy(&pool->lock);
        pthread_cond_destroy(&pool->wake);
        pthread_cond_destroy(&pool->idle);
    }
    free(pool);
}
