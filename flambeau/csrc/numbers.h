/* Bits of the small floating types, rounded to nearest even. */
#pragma once
#include <stdint.h>
#include <string.h>
static inline uint32_t fbits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static inline float bitsf(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline float bf16_to_float(uint16_t h) { return bitsf((uint32_t)h << 16); }
static inline uint16_t float_to_bf16(float f) {
    uint32_t u = fbits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return 0x7fc0 | (uint16_t)((u >> 16) & 0x8000);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
/* A small float with e exponent bits and m mantissa bits, bias 2^(e-1)-1; has_inf: IEEE-like specials. */
static inline float small_to_float(uint32_t h, int e, int m, int has_inf) {
    uint32_t sign = (h >> (e + m)) & 1, ex = (h >> m) & ((1u << e) - 1), man = h & ((1u << m) - 1);
    int bias = (1 << (e - 1)) - 1; float v;
    if (has_inf && ex == (1u << e) - 1) v = man ? bitsf(0x7fc00000) : bitsf(0x7f800000);
    else if (!has_inf && ex == (1u << e) - 1 && man == (1u << m) - 1) v = bitsf(0x7fc00000);
    else if (ex) v = bitsf((ex - bias + 127) << 23 | man << (23 - m));
    else { v = (float)man; for (int i = 0; i < bias - 1 + m; i++) v *= 0.5f; }
    return sign ? -v : v;
}
static inline uint32_t float_to_small(float f, int e, int m, int has_inf) {
    uint32_t u = fbits(f), sign = (u >> 31) << (e + m), a = u & 0x7fffffff;
    int bias = (1 << (e - 1)) - 1;
    uint32_t inf = ((1u << e) - 1) << m, nan = has_inf ? inf | 1u << (m - 1) : inf | ((1u << m) - 1);
    if (a > 0x7f800000) return sign | nan;
    int ex = (int)(a >> 23) - 127 + bias; uint32_t man = (a & 0x7fffff) | (a >> 23 ? 0x800000 : 0);
    int shift = 23 - m + (ex <= 0 ? 1 - ex : 0);
    uint32_t r;
    if (shift > 30) r = 0;
    else {
        r = man >> shift;
        uint32_t rest = man & ((1u << shift) - 1), half = 1u << (shift - 1);
        if (rest > half || (rest == half && r & 1)) r++;
    }
    if (ex > 0) r += (uint32_t)(ex - 1) << m;
    if (a == 0x7f800000 || r >= (has_inf ? inf : nan)) return sign | (has_inf ? inf : nan);
    return sign | r;
}
static inline float half_to_float(uint16_t h) { return small_to_float(h, 5, 10, 1); }
static inline uint16_t float_to_half(float f) { return (uint16_t)float_to_small(f, 5, 10, 1); }
static inline float e5m2_to_float(uint8_t h) { return small_to_float(h, 5, 2, 1); }
static inline uint8_t float_to_e5m2(float f) { return (uint8_t)float_to_small(f, 5, 2, 1); }
static inline float e4m3_to_float(uint8_t h) { return small_to_float(h, 4, 3, 0); }
static inline uint8_t float_to_e4m3(float f) { return (uint8_t)float_to_small(f, 4, 3, 0); }
