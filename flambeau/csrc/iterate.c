/* The iteration driver: broadcasting, output strides, coalescing, threads. */
#define _GNU_SOURCE      /* sched_getaffinity */
#include "native.h"
#include "tape.h"
#include <pthread.h>
#include <time.h>
#include <stdatomic.h>
#include <sched.h>
#include <unistd.h>

/* ---- thread pool: the caller works too and can finish alone ---- */
#define MAXTHREADS 256
#define OPEN 0x10000
static struct { fl_range f; void *ctx; int64_t n, chunk; int most; _Atomic int64_t next; _Atomic int ctl; _Atomic unsigned gen; } job;   /* ctl: OPEN and how many workers joined */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER, wake_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static int threads = 0, workers = 0;
static _Thread_local int inside;

static void work(void) {
    inside = 1;
    for (;;) {
        int64_t i = atomic_fetch_add(&job.next, 1), b = i * job.chunk;
        if (b >= job.n) break;
        job.f(job.ctx, b, b + job.chunk < job.n ? b + job.chunk : job.n);
    }
    inside = 0;
}
static void *worker(void *u) {
    unsigned seen = (unsigned)(uintptr_t)u;
    for (;;) {
        int spin = 0;
        while (atomic_load_explicit(&job.gen, memory_order_acquire) == seen)
            if (++spin > 4000) {
                pthread_mutex_lock(&wake_lock);
                while (atomic_load(&job.gen) == seen) pthread_cond_wait(&wake, &wake_lock);
                pthread_mutex_unlock(&wake_lock);
            } else __builtin_ia32_pause();
        seen = atomic_load(&job.gen);
        int c = atomic_load(&job.ctl);      /* a worker that wakes late finds the job closed and leaves it */
        int joined = 0;
        while (c & OPEN && (c & (OPEN - 1)) < job.most && !(joined = atomic_compare_exchange_weak(&job.ctl, &c, c + 1))) {}
        if (!joined) continue;
        work();
        atomic_fetch_sub(&job.ctl, 1);
    }
    return NULL;
}
static void after_fork(void) {
    workers = 0; job.ctl = 0;
    pthread_mutex_init(&pool_lock, NULL); pthread_mutex_init(&wake_lock, NULL); pthread_cond_init(&wake, NULL);
}
int fl_num_threads(void) {
    if (!threads) {
        cpu_set_t may;
        int n = sched_getaffinity(0, sizeof may, &may) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&may);
        threads = n < 1 ? 1 : n > MAXTHREADS ? MAXTHREADS : n;
    }
    return threads;
}
static double seconds(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
/* Whether threads pay, by kernel and size: what a run took alone and together, on average. A busy
   neighbour, hyperthreads or a memory that one thread fills make them lose; the way that is not
   taken is tried again now and then. Held under pool_lock; results do not depend on it. */
typedef struct { const void *key; int size, count; float alone, together; } Record;
static Record *record_of(const void *key, int64_t total) {
    static Record table[1024];
    int size = 63 - __builtin_clzll((uint64_t)total | 1);
    uint64_t h = ((uint64_t)(intptr_t)key >> 4) * 0x9E3779B97F4A7C15ull + (uint64_t)size * 0xC2B2AE3D27D4EB4Full;
    Record *r = &table[h >> 54];
    if (r->key != key || r->size != size) *r = (Record){.key = key, .size = size};
    return r;
}
static int take_alone(Record *r) {
    r->count++;
    if (r->count <= 8) return r->count > 2 && r->count % 2;    /* the first runs start threads and touch new memory */
    int alone = r->alone < r->together;
    return r->count % 32 ? alone : !alone;
}
static void learn(float *mean, double t) {
    if (*mean == 0 || t < *mean) *mean = (float)t;             /* a better time is believed at once, a worse one slowly */
    else *mean += 0.2f * ((float)(t < 8 * *mean ? t : 8 * *mean) - *mean);
}
void fl_parallel(fl_range f, void *ctx, int64_t n, int64_t grain) { fl_parallel_for(f, ctx, n, grain, (const void *)(intptr_t)f, n / (grain > 0 ? grain : 1)); }
void fl_parallel_for(fl_range f, void *ctx, int64_t n, int64_t grain, const void *key, int64_t total) {
    int nt = fl_num_threads();
    if (nt == 1 || n <= grain || inside || pthread_mutex_trylock(&pool_lock)) { f(ctx, 0, n); return; }
    Record *record = record_of(key, total);
    double began = seconds();
    if (take_alone(record)) {
        inside = 1;                /* the lock is held: what runs here splits no further */
        f(ctx, 0, n);
        inside = 0;
        learn(&record->alone, seconds() - began);
        pthread_mutex_unlock(&pool_lock);
        return;
    }
    for (; workers < nt - 1; workers++) {
        pthread_t t; pthread_attr_t a;
        pthread_attr_init(&a); pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&t, &a, worker, (void *)(uintptr_t)atomic_load(&job.gen))) break;
    }
    if (!workers) { pthread_mutex_unlock(&pool_lock); f(ctx, 0, n); return; }
    int64_t parts = (int64_t)nt * 4, most = (n + grain - 1) / grain;
    if (parts > most) parts = most;
    job.f = f; job.ctx = ctx; job.most = nt - 1; job.n = n; job.chunk = (n + parts - 1) / parts;
    if (!(grain & 63)) job.chunk = (job.chunk + 63) & ~(int64_t)63;
    atomic_store(&job.next, 0); atomic_store(&job.ctl, OPEN);
    pthread_mutex_lock(&wake_lock);
    atomic_fetch_add(&job.gen, 1);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&wake_lock);
    work();
    atomic_fetch_and(&job.ctl, ~OPEN);      /* only workers in the middle of a chunk are waited for */
    for (int spin = 0; atomic_load_explicit(&job.ctl, memory_order_acquire); )
        if (++spin < 2000) __builtin_ia32_pause(); else sched_yield();
    learn(&record->together, seconds() - began);
    pthread_mutex_unlock(&pool_lock);
}

/* ---- geometry ---- */
int fl_broadcast(int n, Tensor **ts, int64_t *sizes) {
    int nd = 0;
    for (int k = 0; k < n; k++) if (ts[k]->ndim > nd) nd = ts[k]->ndim;
    for (int i = 0; i < nd; i++) sizes[i] = 1;
    for (int k = 0, so_far = 0; k < n; k++) {       /* one operand after the other, from the last dimension */
        if (ts[k]->ndim > so_far) so_far = ts[k]->ndim;
        for (int j = ts[k]->ndim - 1; j >= 0; j--) {
            int i = j + nd - ts[k]->ndim;
            int64_t size = ts[k]->sizes[j];
            if (size == 1 || size == sizes[i]) continue;
            if (sizes[i] != 1) {
                PyErr_Format(PyExc_RuntimeError, "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d",
                             (long long)sizes[i], (long long)size, i - (nd - so_far));
                return -1;
            }
            sizes[i] = size;
        }
    }
    return nd;
}
int fl_operand_strides(Tensor *t, int ndim, const int64_t *sizes, int64_t *out) {   /* in bytes, 0 where broadcast */
    for (int i = 0; i < ndim; i++) {
        int j = i - (ndim - t->ndim);
        out[i] = j < 0 || (t->sizes[j] == 1 && sizes[i] != 1) ? 0 : t->strides[j] * t->dtype->itemsize;
    }
    return 0;
}
/* Dimensions from the innermost: the first operand that tells two apart decides; on equal strides the
   larger extent goes outside. */
static void order_dims(int n, const int64_t (*st)[FL_MAXDIM], int ndim, const int64_t *sizes, int *perm) {
    for (int i = 0; i < ndim; i++) perm[i] = ndim - 1 - i;
    for (int i = 1; i < ndim; i++) {
        int at = i;
        for (int j = i - 1; j >= 0; j--) {
            int a = perm[j], b = perm[at], order = 0;
            for (int k = 0; k < n; k++) {
                int64_t x = st[k][a], y = st[k][b];
                if (x == 0 || y == 0) continue;
                if (x < y) { order = -1; break; }
                if (x > y) { order = 1; break; }
                if (sizes[a] > sizes[b]) { order = 1; break; }
            }
            if (order > 0) { perm[j] = b; perm[at] = a; at = j; }
            else if (order < 0) break;
        }
    }
}
/* Strides of a fresh output: dense operands of one geometry are followed; otherwise dimensions are
   ordered by the operands' strides, the first operand that tells two dimensions apart deciding
   (larger extent outside on equal strides), and the output is dense in that order. */
void fl_out_strides(int n, Tensor **ts, int ndim, const int64_t *sizes, int64_t *strides) {
    int same = 1, allc = 1;
    for (int k = 0; k < n && same; k++) {
        Tensor *t = ts[k];
        same = t->ndim == ndim && !memcmp(t->sizes, sizes, ndim * sizeof *sizes);
        allc &= t->contiguous;
    }
    if (n == 0 || (same && allc)) {
        int64_t c = 1;
        for (int i = ndim; i--;) { strides[i] = c; c *= sizes[i] > 1 ? sizes[i] : 1; }
        return;
    }
    if (same) {      /* one dense geometry shared by all */
        for (int k = 1; k < n && same; k++) same = !memcmp(ts[k]->strides, ts[0]->strides, ndim * sizeof *strides);
        int64_t p[FL_MAXDIM]; int used[FL_MAXDIM] = {0}; int64_t c = 1, dense = same;
        for (int r = 0; dense && r < ndim; r++) {
            int best = -1;
            for (int i = 0; i < ndim; i++) if (!used[i] && sizes[i] != 1 && ts[0]->strides[i] == c) { best = i; break; }
            if (best < 0) { for (int i = 0; i < ndim; i++) if (!used[i] && sizes[i] != 1) dense = 0; break; }
            used[best] = 1; c *= sizes[best];
        }
        (void)p;
        if (dense) { memcpy(strides, ts[0]->strides, ndim * sizeof *strides); return; }
    }
    int perm[FL_MAXDIM]; static _Thread_local int64_t st[FL_MAXOPS][FL_MAXDIM];
    if (n > FL_MAXOPS) n = FL_MAXOPS;
    for (int k = 0; k < n; k++) fl_operand_strides(ts[k], ndim, sizes, st[k]);
    order_dims(n, (const int64_t (*)[FL_MAXDIM])st, ndim, sizes, perm);
    int64_t c = 1; int plain = 1;
    for (int i = 0; i < ndim; i++) plain &= perm[i] == ndim - 1 - i;
    for (int i = 0; i < ndim; i++) { strides[perm[i]] = c; c *= plain && !sizes[perm[i]] ? 1 : sizes[perm[i]]; }
}

/* ---- running a loop ---- */
typedef struct {
    fl_loop f; int nops, ndim; const void *params;
    char *ptr[FL_MAXOPS];
    int64_t size[FL_MAXDIM], st[FL_MAXDIM][FL_MAXOPS];    /* per dimension */
    int split;                                            /* dimension given to the threads */
} Plan;
static void run_part(void *ctx, int64_t begin, int64_t end) {
    const Plan *p = ctx; int n = p->nops, nd = p->ndim, k = p->split;
    int64_t st[2 * FL_MAXOPS], idx[FL_MAXDIM], size[FL_MAXDIM]; char *ptr[FL_MAXOPS];
    for (int d = 0; d < nd; d++) { size[d] = p->size[d]; idx[d] = 0; }
    size[k] = end - begin;
    for (int a = 0; a < n; a++) { ptr[a] = p->ptr[a] + begin * p->st[k][a]; st[a] = p->st[0][a]; st[n + a] = p->st[1][a]; }
    for (;;) {
        char *q[FL_MAXOPS];
        memcpy(q, ptr, n * sizeof *q);
        p->f(q, st, size[0], size[1], p->params);
        int d = 2;
        for (; d < nd; d++) {
            for (int a = 0; a < n; a++) ptr[a] += p->st[d][a];
            if (++idx[d] < size[d]) break;
            for (int a = 0; a < n; a++) ptr[a] -= size[d] * p->st[d][a];
            idx[d] = 0;
        }
        if (d >= nd) break;
    }
}
#define SWAP_DIM(i, j) do { int64_t s_ = p.size[i]; p.size[i] = p.size[j]; p.size[j] = s_; \
    for (int a_ = 0; a_ < nops; a_++) { int64_t t_ = p.st[i][a_]; p.st[i][a_] = p.st[j][a_]; p.st[j][a_] = t_; } } while (0)
static void coalesce(Plan *p, int first) {
    int k = first;
    for (int d = first + 1; d < p->ndim; d++) {
        int ok = 1;
        for (int a = 0; a < p->nops && ok; a++) ok = p->st[k][a] * p->size[k] == p->st[d][a];
        if (ok) p->size[k] *= p->size[d];
        else { k++; p->size[k] = p->size[d]; memcpy(p->st[k], p->st[d], p->nops * sizeof(int64_t)); }
    }
    if (p->ndim > first) p->ndim = k + 1;
}
static void launch(Plan *p, int first_split, int64_t total, int64_t each) {
    for (; p->ndim < 2; p->ndim++) { p->size[p->ndim] = 1; memset(p->st[p->ndim], 0, p->nops * sizeof(int64_t)); }
    int k = -1;
    if (total >= 65536) {
        int64_t need = 4 * fl_num_threads();
        for (int d = p->ndim - 1; d >= first_split; d--) if (p->size[d] >= need || (d == first_split && p->size[d] > 1)) { k = d; break; }
        if (k < 0) for (int d = p->ndim - 1; d >= first_split; d--) if (p->size[d] > 1 && (k < 0 || p->size[d] > p->size[k])) k = d;
    }
    if (k < 0) { p->split = p->ndim - 1; run_part(p, 0, p->size[p->ndim - 1]); return; }
    p->split = k;
    int64_t per = total / p->size[k], grain = per ? 32768 / per : 32768;
    int beside = k == 0;             /* rows side by side: whole vectors of them, whatever the number of threads */
    for (int a = 0; k == 1 && first_split == 1 && a < p->nops; a++) beside |= p->st[0][a] > 8 && p->st[1][a] && p->st[1][a] <= 8;
    if (beside) grain = (grain + 63) & ~(int64_t)63;
    PyThreadState *save = NULL;
    if (total >= 262144 && PyGILState_Check()) save = PyEval_SaveThread();
    fl_parallel_for(run_part, p, p->size[k], grain < 1 ? 1 : grain, (const void *)(intptr_t)p->f, total);
    if (save) PyEval_RestoreThread(save);
}
/* Elements of the output share bytes (an in-place operator on as_strided): what one row writes the next
   one reads, so rows run one after the other, in the iterator's order. */
static void run_overlapping(Plan *p, const int64_t (*strides)[FL_MAXDIM], int ndim, const int64_t *sizes) {
    int perm[FL_MAXDIM];
    order_dims(p->nops, strides, ndim, sizes, perm);
    p->ndim = 0;
    for (int i = 0; i < ndim; i++) {
        int d = p->ndim++;
        if (d == 1) { p->size[1] = 1; memset(p->st[1], 0, sizeof p->st[1]); d = p->ndim++; }
        p->size[d] = sizes[perm[i]];
        for (int a = 0; a < p->nops; a++) p->st[d][a] = strides[a][perm[i]];
    }
    launch(p, 0, 1, 0);
}
void fl_run_map(fl_loop f, int nops, char **ptr, int ndim, const int64_t *sizes, const int64_t (*strides)[FL_MAXDIM], const void *params) {
    Plan p; int64_t total = 1;
    p.f = f; p.nops = nops; p.ndim = 0; p.params = params;
    memcpy(p.ptr, ptr, nops * sizeof *ptr);
    for (int i = ndim; i--;) {
        total *= sizes[i];
        if (sizes[i] == 1) continue;
        int d = p.ndim++;
        p.size[d] = sizes[i];
        for (int a = 0; a < nops; a++) p.st[d][a] = strides[a][i];
        for (; d > 0; d--) {         /* by the operands' strides, the output's first */
            int swap = 0;
            for (int a = 0; a < nops; a++) {
                int64_t x = p.st[d][a], y = p.st[d - 1][a];
                if (x == y || x == 0 || y == 0) continue;
                swap = x < y; break;
            }
            if (!swap) break;
            SWAP_DIM(d, d - 1);
        }
    }
    if (!total) return;
    for (int d = 1, whole = 1; d < p.ndim && whole; d++) {
        int64_t reach = p.st[d - 1][0] * (p.size[d - 1] - 1);
        whole = p.st[d][0] > reach;
        if (!whole && p.st[d][0] && ndim < FL_MAXDIM) { run_overlapping(&p, strides, ndim, sizes); return; }
    }
    coalesce(&p, 0);
    if (p.ndim > 2)                  /* the second dimension: the one along which an input is dense */
        for (int d = 2; d < p.ndim; d++) {
            int64_t x = p.st[d][nops - 1], y = p.st[1][nops - 1], z = p.st[0][nops - 1];
            if (x && x < z && (x < y || !y)) SWAP_DIM(1, d);
        }
    launch(&p, 0, total, 0);
}
void fl_run_rows(fl_loop f, int nops, char **ptr, int64_t n0, const int64_t *st0, int ndim, const int64_t *sizes,
                 const int64_t (*strides)[FL_MAXDIM], const void *params) {
    Plan p; int64_t total = n0 > 1 ? n0 : 1;
    p.f = f; p.nops = nops; p.ndim = 1; p.params = params;
    memcpy(p.ptr, ptr, nops * sizeof *ptr);
    p.size[0] = n0;
    memcpy(p.st[0], st0, nops * sizeof *st0);
    for (int i = ndim; i--;) {
        total *= sizes[i];
        if (sizes[i] == 1) continue;
        int d = p.ndim++;
        p.size[d] = sizes[i];
        for (int a = 0; a < nops; a++) p.st[d][a] = strides[a][i];
        for (; d > 1; d--) {
            int swap = 0;
            for (int a = nops; a--;) {
                int64_t x = p.st[d][a], y = p.st[d - 1][a];
                if (x == y || x == 0 || y == 0) continue;
                swap = x < y; break;
            }
            if (!swap) break;
            SWAP_DIM(d, d - 1);
        }
    }
    if (!total) return;
    coalesce(&p, 1);
    launch(&p, 1, total, 0);
}

/* ---- for Python ---- */
static int tensors(PyObject *seq, Tensor **ts, int max) {
    PyObject *f = PySequence_Fast(seq, "expected a sequence of tensors");
    if (!f) return -1;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(f);
    if (n > max) { Py_DECREF(f); PyErr_SetString(PyExc_ValueError, "too many operands"); return -1; }
    for (Py_ssize_t i = 0; i < n; i++) {
        ts[i] = (Tensor *)PySequence_Fast_GET_ITEM(f, i);
        if (!Tensor_Check(ts[i])) { Py_DECREF(f); PyErr_SetString(PyExc_TypeError, "expected tensors"); return -1; }
    }
    Py_DECREF(f);      /* the caller's sequence keeps them alive */
    return (int)n;
}
static PyObject *ints(int n, const int64_t *v) {
    PyObject *r = PyTuple_New(n);
    for (int i = 0; r && i < n; i++) PyTuple_SET_ITEM(r, i, PyLong_FromLongLong(v[i]));
    return r;
}
/* geometry_of(tensors) -> (size, stride): broadcast shape, and strides by the iterator's rule. */
static PyObject *f_geometry(PyObject *m, PyObject *seq) {
    Tensor *ts[FL_MAXOPS]; int64_t sz[FL_MAXDIM], st[FL_MAXDIM];
    int n = tensors(seq, ts, FL_MAXOPS), nd;
    for (int k = 0; k < n; k++) if (ts[k]->sym) {
        PyObject *f = PyDict_GetItemString(fl_hooks, "symbolic_broadcast");
        return f ? PyObject_CallOneArg(f, seq) : PyErr_Format(PyExc_SystemError, "symbolic_broadcast is not filled");
    }
    if (n < 0 || (nd = fl_broadcast(n, ts, sz)) < 0) return NULL;
    fl_out_strides(n, ts, nd, sz, st);
    PyObject *a = ints(nd, sz), *b = ints(nd, st);
    return a && b ? Py_BuildValue("(NN)", a, b) : NULL;
}
static int params_of(PyObject *p, char *buf, Py_ssize_t max) {     /* bytes of 8-byte slots */
    if (p == Py_None) return 0;
    Py_ssize_t n = PyBytes_Size(p);
    if (n < 0 || n > max) { if (n > max) PyErr_SetString(PyExc_ValueError, "too many parameters"); return -1; }
    memcpy(buf, PyBytes_AS_STRING(p), n);
    return 0;
}
/* run_map(address, outs, ins, params): inputs broadcast to the first output's shape. */
static PyObject *f_run_map(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Tensor *ts[FL_MAXOPS]; char *ptr[FL_MAXOPS], params[256]; int64_t st[FL_MAXOPS][FL_MAXDIM];
    if (n != 4) { PyErr_SetString(PyExc_TypeError, "run_map(address, outs, ins, params)"); return NULL; }
    void *f = PyLong_AsVoidPtr(a[0]);
    int no, ni;
    if (!f || (no = tensors(a[1], ts, FL_MAXOPS)) < 1 || (ni = tensors(a[2], ts + no, FL_MAXOPS - no)) < 0 || params_of(a[3], params, sizeof params)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "run_map: no kernel or no output");
        return NULL;
    }
    for (int k = 0; k < no + ni; k++) {
        if (!ts[k]->storage->data && ts[0]->numel) { PyErr_SetString(PyExc_RuntimeError, "run_map: an operand has no bytes (fake, meta, or freed storage)"); return NULL; }
        ptr[k] = fl_data(ts[k]);
        fl_operand_strides(ts[k], ts[0]->ndim, ts[0]->sizes, st[k]);
    }
    fl_run_map((fl_loop)f, no + ni, ptr, ts[0]->ndim, ts[0]->sizes, (const int64_t (*)[FL_MAXDIM])st, params);
    Py_RETURN_NONE;
}
/* run_rows(address, outs, ins, dim, params): all operands have the same rank; dim is reduced or
   scanned; an operand of extent 1 along a dimension is used all along it. */
static PyObject *f_run_rows(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Tensor *ts[FL_MAXOPS]; char *ptr[FL_MAXOPS], params[256]; int64_t st[FL_MAXOPS][FL_MAXDIM], st0[FL_MAXOPS], sz[FL_MAXDIM], n0 = 1;
    if (n != 5) { PyErr_SetString(PyExc_TypeError, "run_rows(address, outs, ins, dim, params)"); return NULL; }
    void *f = PyLong_AsVoidPtr(a[0]);
    int no, ni, dim = (int)PyLong_AsLong(a[3]);
    if (!f || (no = tensors(a[1], ts, FL_MAXOPS)) < 1 || (ni = tensors(a[2], ts + no, FL_MAXOPS - no)) < 1 || params_of(a[4], params, sizeof params)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "run_rows: no kernel, output or input");
        return NULL;
    }
    int nd = ts[no]->ndim, total = no + ni;
    for (int k = 0; k < total; k++) if (ts[k]->ndim != nd) { PyErr_SetString(PyExc_ValueError, "run_rows: operands differ in rank"); return NULL; }
    if (dim < 0 || dim >= (nd ? nd : 1)) { PyErr_SetString(PyExc_ValueError, "run_rows: dim"); return NULL; }
    int64_t full[FL_MAXDIM];
    for (int i = 0; i < nd; i++) { full[i] = 1; for (int k = 0; k < total; k++) if (ts[k]->sizes[i] != 1) full[i] = ts[k]->sizes[i]; }
    for (int k = 0; k < total; k++) {
        if (!ts[k]->storage->data && ts[k]->numel) { PyErr_SetString(PyExc_RuntimeError, "run_rows: an operand has no bytes (fake, meta, or freed storage)"); return NULL; }
        ptr[k] = fl_data(ts[k]);
        int64_t all[FL_MAXDIM];
        fl_operand_strides(ts[k], nd, full, all);
        int j = 0;
        for (int i = 0; i < nd; i++) if (i != dim) { sz[j] = full[i]; st[k][j++] = all[i]; }
        st0[k] = nd ? all[dim] : 0;
    }
    if (nd) n0 = full[dim];
    fl_run_rows((fl_loop)f, total, ptr, n0, st0, nd ? nd - 1 : 0, sz, (const int64_t (*)[FL_MAXDIM])st, params);
    Py_RETURN_NONE;
}
static PyObject *f_threads(PyObject *m, PyObject *u) { return PyLong_FromLong(fl_num_threads()); }
static PyObject *f_set_threads(PyObject *m, PyObject *v) {
    long n = PyLong_AsLong(v);
    if (n == -1 && PyErr_Occurred()) return NULL;
    if (n < 1) { PyErr_SetString(PyExc_RuntimeError, "set_num_threads expects a positive integer"); return NULL; }
    threads = n > MAXTHREADS ? MAXTHREADS : (int)n;
    Py_RETURN_NONE;
}
static PyMethodDef functions[] = {
    {"geometry_of", f_geometry, METH_O}, {"run_map", (PyCFunction)f_run_map, METH_FASTCALL}, {"run_rows", (PyCFunction)f_run_rows, METH_FASTCALL},
    {"get_num_threads", f_threads, METH_NOARGS}, {"set_num_threads", f_set_threads, METH_O}, {0}};
int fl_iterate_init(PyObject *m) { pthread_atfork(NULL, NULL, after_fork); return PyModule_AddFunctions(m, functions); }
