/* Ordering pairs of (key, place): included once for each key type K, names made by N(x).
   Which of several equal elements comes first is part of the result that users see (the indices),
   so these are the algorithms of the C++ standard library that torch is built with: introsort,
   selection by a heap, introselect. Method: D. Musser, "Introspective sorting and selection
   algorithms", 1997; heaps: J. W. J. Williams, "Algorithm 232", 1964. */
typedef struct { K key; K at; } N(Pair);

static void N(sift)(N(Pair) *a, int64_t hole, int64_t n, N(Pair) v) {   /* down to a leaf, then up */
    int64_t top = hole, child = hole;
    while (child < (n - 1) / 2) {
        child = 2 * (child + 1);
        if (a[child].key < a[child - 1].key) child--;
        a[hole] = a[child]; hole = child;
    }
    if (!(n & 1) && child == (n - 2) / 2) { child = 2 * child + 1; a[hole] = a[child]; hole = child; }
    for (int64_t up = (hole - 1) / 2; hole > top && a[up].key < v.key; up = (hole - 1) / 2) { a[hole] = a[up]; hole = up; }
    a[hole] = v;
}
static void N(heap_select)(N(Pair) *a, int64_t k, int64_t n) {          /* the k smallest of n, as a heap */
    for (int64_t i = (k - 2) / 2; k > 1 && i >= 0; i--) N(sift)(a, i, k, a[i]);
    for (int64_t i = k; i < n; i++) if (a[i].key < a[0].key) { N(Pair) v = a[i]; a[i] = a[0]; N(sift)(a, 0, k, v); }
}
static void N(heap_sort)(N(Pair) *a, int64_t n) {
    while (n-- > 1) { N(Pair) v = a[n]; a[n] = a[0]; N(sift)(a, 0, n, v); }
}
static void N(partial)(N(Pair) *a, int64_t k, int64_t n) { N(heap_select)(a, k, n); N(heap_sort)(a, k); }

static inline void N(swap)(N(Pair) *x, N(Pair) *y) { N(Pair) t = *x; *x = *y; *y = t; }
static int64_t N(cut)(N(Pair) *a, int64_t n) {      /* partition by the median of second, middle and last */
    K x = a[1].key, y = a[n / 2].key, z = a[n - 1].key;
    int64_t m = x < y ? (y < z ? n / 2 : x < z ? n - 1 : 1) : x < z ? 1 : y < z ? n - 1 : n / 2;
    N(swap)(a, a + m);
    K pivot = a[0].key; int64_t i = 1, j = n;
    for (;; i++) {
        while (a[i].key < pivot) i++;
        while (pivot < a[--j].key) ;
        if (i >= j) return i;
        N(swap)(a + i, a + j);
    }
}
static void N(insert)(N(Pair) *a, int64_t i) { N(Pair) v = a[i]; for (; v.key < a[i - 1].key; i--) a[i] = a[i - 1]; a[i] = v; }
static void N(insertion)(N(Pair) *a, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        N(Pair) v = a[i];
        if (v.key < a[0].key) { memmove(a + 1, a, i * sizeof *a); a[0] = v; } else N(insert)(a, i);
    }
}
static void N(intro)(N(Pair) *a, int64_t n, int depth) {
    while (n > 16) {
        if (!depth--) { N(partial)(a, n, n); return; }
        int64_t c = N(cut)(a, n);
        N(intro)(a + c, n - c, depth);
        n = c;
    }
}
static int N(depth)(int64_t n) { int d = 0; while (n >>= 1) d += 2; return d; }
static void N(sort)(N(Pair) *a, int64_t n) {
    if (n < 2) return;
    N(intro)(a, n, N(depth)(n));
    N(insertion)(a, n > 16 ? 16 : n);
    for (int64_t i = 16; i < n; i++) N(insert)(a, i);
}
static void N(nth)(N(Pair) *a, int64_t k, int64_t n) {                  /* a[k] as if sorted, smaller ones before it */
    int64_t first = 0, last = n;
    for (int depth = N(depth)(n); last - first > 3;) {
        if (!depth--) { N(heap_select)(a + first, k + 1 - first, last - first); N(swap)(a + first, a + k); return; }
        int64_t c = first + N(cut)(a + first, last - first);
        if (c <= k) first = c; else last = c;
    }
    N(insertion)(a + first, last - first);
}
/* Hoare's selection with the median of three (Sedgewick, "Implementing quicksort programs", 1978). */
static void N(select)(N(Pair) *a, int64_t k, int64_t n) {
    int64_t l = 0, r = n - 1;
    while (r > l + 1) {
        N(swap)(a + l + (r - l) / 2, a + l + 1);
        if (a[l + 1].key > a[r].key) N(swap)(a + l + 1, a + r);
        if (a[l].key > a[r].key) N(swap)(a + l, a + r);
        if (a[l + 1].key > a[l].key) N(swap)(a + l + 1, a + l);
        int64_t i = l + 1, j = r; K pivot = a[l].key;
        for (;;) {
            while (pivot > a[++i].key) ;
            while (a[--j].key > pivot) ;
            if (j < i) break;
            N(swap)(a + i, a + j);
        }
        N(swap)(a + l, a + j);
        if (j <= k) l = i;
        if (j >= k) r = j - 1;
    }
    if (r == l + 1 && a[l].key > a[r].key) N(swap)(a + l, a + r);
}
static void N(stable)(N(Pair) *a, N(Pair) *b, int64_t n) {              /* merges runs of 16; the result is in a */
    for (int64_t i = 0; i < n; i += 16) N(insertion)(a + i, n - i < 16 ? n - i : 16);
    N(Pair) *from = a, *to = b;
    for (int64_t w = 16; w < n; w *= 2) {
        for (int64_t i = 0; i < n; i += 2 * w) {
            int64_t x = i, xe = i + w < n ? i + w : n, y = xe, ye = i + 2 * w < n ? i + 2 * w : n, o = i;
            while (x < xe && y < ye) { if (from[y].key < from[x].key) to[o++] = from[y++]; else to[o++] = from[x++]; }
            memcpy(to + o, from + x, (xe - x) * sizeof *a); o += xe - x;
            memcpy(to + o, from + y, (ye - y) * sizeof *a);
        }
        N(Pair) *t = from; from = to; to = t;
    }
    if (from != a) memcpy(a, from, n * sizeof *a);
}
static void N(order)(int how, N(Pair) *a, N(Pair) *spare, int64_t n, int64_t k, int sorted) {
    switch (how) {
    case SORT: N(sort)(a, n); return;
    case STABLE: N(stable)(a, spare, n); return;
    case KTH: N(select)(a, k - 1, n); return;
    default:
        if (!k) return;
        if (k * 64 <= n) { N(partial)(a, k, n); return; }
        N(nth)(a, k - 1, n);
        if (sorted) N(sort)(a, k - 1);
    }
}
static void N(rows)(void *ctx, int64_t begin, int64_t end) {
    const Job *j = ctx;
    N(Pair) *a = PyMem_RawMalloc((j->how == STABLE ? 2 : 1) * (j->n ? j->n : 1) * sizeof *a);
    if (!a) { ((Job *)ctx)->failed = 1; return; }
    for (int64_t r = begin; r < end; r++) {
        const char *x = j->x; char *v = j->v, *p = j->p;
        for (int64_t d = j->nd, q = r; d--; q /= j->size[d]) {
            int64_t i = q % j->size[d];
            x += i * j->sx[d]; v += i * j->sv[d]; p += i * j->sp[d];
        }
        for (int64_t i = 0; i < j->n; i++) {
            K key = (K)key_of(j->code, x + i * j->x0);
            a[i].key = j->descending ? ~key : key; a[i].at = (K)i;
        }
        N(order)(j->how, a, a + j->n, j->n, j->k, j->sorted);
        const N(Pair) *from = j->how == KTH ? a + j->k - 1 : a;
        for (int64_t i = 0; i < j->m; i++) {
            memcpy(v + i * j->v0, x + from[i].at * j->x0, j->item);
            *(int64_t *)(p + i * j->p0) = (int64_t)from[i].at;
        }
    }
    PyMem_RawFree(a);
}
