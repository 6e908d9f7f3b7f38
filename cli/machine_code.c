/* Analysis of the machine code of kernels that name an instruction set: the instructions in their loops. x86-64 only.
 *
 * The binary is loaded in this process. Its unwind table (.eh_frame_hdr) lists its functions, with symbols or without. Each
 * function is decoded from its first instruction to its last. A kernel's analysis includes every function that the kernel calls,
 * jumps to, or takes the address of, as for dv_parallel_for(). Code that cannot be decoded gives no answer.
 *
 * In a function for AVX, compilers encode each vector instruction, scalar floating point included, with a VEX or EVEX prefix. In
 * a function for the base set, they use neither prefix. So the encoding tells for which of the two a loop was compiled. */
#include "cli.h"

#include <link.h>
#include <stdlib.h>

/* A function of the binary, and the kinds of instructions in its loops. */
typedef struct code_function {
    const uint8_t *start, *end;
    size_t *callees, ncallees; /* indices of the functions that this function refers to */
    bool decoded;
    bool has_vectors;        /* a loop of the function has instructions of AVX or later */
    bool has_legacy_sse;     /* a loop of the function has instructions of SSE */
    bool has_stores;         /* a loop of the function writes memory from general registers */
    bool is_external_caller; /* the function calls another binary */
    bool is_opaque;          /* the function cannot be decoded, or calls through a pointer that is set later */
} code_function;

enum { CODE_MAX_SEGMENTS = 16 };
struct cli_machine_code {
    struct {
        const uint8_t *start, *end;
        bool executable;
    } segments[CODE_MAX_SEGMENTS]; /* segments of the loaded binary */
    size_t nsegments;
    const uint8_t *eh_frame_table; /* .eh_frame_hdr */
    code_function *functions;      /* by address */
    size_t n;
};

void cli_machine_code_close(cli_machine_code *c)
{
    for (size_t i = 0; c && i < c->n; i++)
        free(c->functions[i].callees);
    if (c)
        free(c->functions);
    free(c);
}

#if defined(__x86_64__)

/* ---- One instruction ----------------------------------------------------------------------------------------------------- */

enum code_encoding { CODE_LEGACY, CODE_VEX, CODE_EVEX };

typedef struct code_instruction {
    size_t size;
    enum code_encoding encoding;
    int map;               /* the opcode map: 0 for one byte, 1 for 0F, 2 for 0F 38, 3 for 0F 3A, and so on */
    uint8_t opcode, modrm; /* modrm: 0xC0 if the instruction has no ModRM byte */
    bool on_stack;         /* the memory operand is on the stack, at a constant distance from the stack pointer */
    const uint8_t *memory; /* the address of a memory operand that is relative to the instruction; NULL: none */
    const uint8_t *target; /* target of a direct branch or call; NULL: none */
} code_instruction;

/* True if the opcode has a ModRM byte. */
static bool code_opcode_has_modrm(int map, uint8_t op)
{
    if (map >= 2)
        return true;
    if (map == 1)
        return !(op == 0x05 || (op >= 0x06 && op <= 0x0B) || op == 0x0E || (op >= 0x30 && op <= 0x37) || op == 0x77 ||
            (op >= 0x80 && op <= 0x8F) || (op >= 0xA0 && op <= 0xA2) || (op >= 0xA8 && op <= 0xAA) || (op >= 0xC8 && op <= 0xCF));
    if (op < 0x40)
        return (op & 7) < 4;
    return op == 0x63 || op == 0x69 || op == 0x6B || (op >= 0x80 && op <= 0x8F) || op == 0xC0 || op == 0xC1 || op == 0xC6 ||
        op == 0xC7 || (op >= 0xD0 && op <= 0xD3) || (op >= 0xD8 && op <= 0xDF) || op == 0xF6 || op == 0xF7 || op >= 0xFE;
}

/* Returns the size of the immediate operand in bytes. wide: REX.W is set; narrow: the prefix 66 is present. */
static size_t code_get_immediate_size(const code_instruction *in, bool wide, bool narrow)
{
    const uint8_t op = in->opcode;
    const size_t z = narrow && !wide ? 2 : 4;
    if (in->map == 3)
        return 1;
    if (in->map == 1)
        return (op >= 0x70 && op <= 0x73) || op == 0xA4 || op == 0xAC || op == 0xBA || op == 0xC2 || (op >= 0xC4 && op <= 0xC6)
            ? 1
            : in->encoding == CODE_LEGACY && op >= 0x80 && op <= 0x8F ? 4
                                                                      : 0;
    if (in->map)
        return 0;
    if (op < 0x40)
        return (op & 7) == 4 ? 1 : (op & 7) == 5 ? z : 0;
    if ((op >= 0x70 && op <= 0x80) || op == 0x83 || op == 0x6A || op == 0x6B || op == 0xA8 || (op >= 0xB0 && op <= 0xB7) ||
        op == 0xC0 || op == 0xC1 || op == 0xC6 || op == 0xCD || (op >= 0xE0 && op <= 0xE7) || op == 0xEB)
        return 1;
    if (op == 0x68 || op == 0x69 || op == 0x81 || op == 0xA9 || op == 0xC7)
        return z;
    if (op == 0xE8 || op == 0xE9)
        return 4;
    if (op >= 0xB8 && op <= 0xBF)
        return wide ? 8 : z;
    if (op >= 0xA0 && op <= 0xA3)
        return 8;
    if (op == 0xF6 || op == 0xF7)
        return (in->modrm >> 3 & 7) > 1 ? 0 : op == 0xF6 ? 1 : z;
    return op == 0xC2 || op == 0xCA ? 2 : op == 0xC8 ? 3 : 0;
}

/* True if compilers do not emit the opcode, so that it is not decoded here. */
static bool code_is_unsupported(const code_instruction *in)
{
    static const uint8_t none[] = { 0x06, 0x07, 0x0E, 0x16, 0x17, 0x1E, 0x1F, 0x27, 0x2F, 0x37, 0x3F, 0x60, 0x61, 0x82, 0x9A,
        0xCE, 0xD4, 0xD5, 0xD6, 0xEA };
    return in->map == 4 || in->map > 6 || (in->map == 0 && memchr(none, in->opcode, sizeof none));
}

/* Returns the signed 32-bit number at p. */
static int32_t code_read_int32(const uint8_t *p)
{
    int32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* Decodes one instruction of 64-bit x86 (Intel's manual, volume 2, chapter 2 and appendix A). False: the instruction is unknown,
 * or ends after `end`. */
static bool code_try_decode_instruction(const uint8_t *begin, const uint8_t *end, code_instruction *in)
{
    const uint8_t *p = begin;
    bool narrow = false, any = false;
    uint8_t rex = 0;
    *in = (code_instruction){ .modrm = 0xC0 };
    for (; p < end && !any; p += !any) {
        any = !(*p == 0x66 || *p == 0x67 || *p == 0xF0 || *p == 0xF2 || *p == 0xF3 || *p == 0x2E || *p == 0x36 || *p == 0x3E ||
            *p == 0x26 || *p == 0x64 || *p == 0x65);
        narrow |= *p == 0x66;
    }
    if (p < end && *p >= 0x40 && *p <= 0x4F)
        rex = *p++;
    if (end - p < 1)
        return false;
    if (*p == 0xC5 && end - p > 2) {
        in->encoding = CODE_VEX, in->map = 1, p += 2;
    } else if (*p == 0xC4 && end - p > 3) {
        in->encoding = CODE_VEX, in->map = p[1] & 31, p += 3;
    } else if (*p == 0x62 && end - p > 4) {
        in->encoding = CODE_EVEX, in->map = p[1] & 7, p += 4;
    } else if (*p == 0x0F && end - p > 1) {
        in->map = p[1] == 0x38 ? 2 : p[1] == 0x3A ? 3 : 1;
        p += in->map == 1 ? 1 : 2;
    }
    if (p >= end || (in->encoding != CODE_LEGACY && !in->map))
        return false;
    in->opcode = *p++;
    if (code_is_unsupported(in))
        return false;
    bool relative = false;
    if (code_opcode_has_modrm(in->map, in->opcode)) {
        if (p >= end)
            return false;
        in->modrm = *p++;
        const int mod = in->modrm >> 6, rm = in->modrm & 7;
        const bool sib = mod != 3 && rm == 4;
        if (sib && p >= end)
            return false;
        const int base = sib ? *p++ & 7 : rm;
        in->on_stack = sib && base == 4 && !(rex & 1);
        relative = mod == 0 && !sib && rm == 5;
        const size_t displacement = mod == 1 ? 1 : mod == 2 || (mod == 0 && base == 5) ? 4 : 0;
        if ((size_t)(end - p) < displacement)
            return false;
        if (relative)
            in->memory = p; /* completed below */
        p += displacement;
    }
    const size_t immediate = code_get_immediate_size(in, rex & 8, narrow);
    if ((size_t)(end - p) < immediate)
        return false;
    const uint8_t *operand = p;
    p += immediate;
    in->size = (size_t)(p - begin);
    in->memory = relative ? p + code_read_int32(in->memory) : NULL;
    const uint8_t op = in->opcode;
    if (in->encoding == CODE_LEGACY &&
        ((in->map == 0 && ((op >= 0x70 && op <= 0x7F) || op == 0xEB || (op >= 0xE0 && op <= 0xE3)))))
        in->target = p + (int8_t)*operand;
    if (in->encoding == CODE_LEGACY &&
        ((in->map == 0 && (op == 0xE8 || op == 0xE9)) || (in->map == 1 && op >= 0x80 && op <= 0x8F)))
        in->target = p + code_read_int32(operand);
    return true;
}

/* True if an instruction belongs to AVX or later. False for vzeroupper and for instructions on general registers (BMI). */
static bool code_is_avx(const code_instruction *in)
{
    const uint8_t op = in->opcode;
    return in->encoding == CODE_EVEX ||
        (in->encoding == CODE_VEX && !(in->map == 1 && op == 0x77) && !(in->map == 2 && op >= 0xF2 && op <= 0xF7) &&
            !(in->map == 3 && op == 0xF0));
}

/* True if an instruction belongs to SSE and has no VEX or EVEX prefix. */
static bool code_is_sse(const code_instruction *in)
{
    const uint8_t op = in->opcode;
    if (in->encoding != CODE_LEGACY)
        return false;
    if (in->map == 1)
        return (op >= 0x10 && op <= 0x17) || (op >= 0x28 && op <= 0x2F) || (op >= 0x50 && op <= 0x7F && op != 0x77) ||
            op == 0xC2 || (op >= 0xC4 && op <= 0xC6) || (op >= 0xD0 && op <= 0xFE);
    return in->map == 3 || (in->map == 2 && op < 0xF0);
}

/* True if an instruction without vector registers writes memory that is not on the stack. */
static bool code_is_store(const code_instruction *in)
{
    const uint8_t op = in->opcode;
    if (in->encoding != CODE_LEGACY || in->map || in->modrm >= 0xC0 || in->on_stack)
        return false;
    return op == 0x88 || op == 0x89 || op == 0xC6 || op == 0xC7 || (op < 0x38 && (op & 7) < 2);
}

/* ---- The functions of the binary ----------------------------------------------------------------------------------------- */

/* Returns the index of the function that contains an address; c->n: there is none. */
static size_t code_find_function_index(const cli_machine_code *c, const uint8_t *address)
{
    size_t low = 0, high = c->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (c->functions[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n && c->functions[low].start <= address ? low : c->n;
}

/* Adds the function that contains an address to the callees of f, once; an address outside of all functions adds nothing. */
static void code_add_callee(const cli_machine_code *c, code_function *f, const uint8_t *address)
{
    const size_t index = code_find_function_index(c, address);
    if (index == c->n || &c->functions[index] == f)
        return;
    for (size_t i = 0; i < f->ncallees; i++)
        if (f->callees[i] == index)
            return;
    f->callees = cli_realloc_array(f->callees, f->ncallees + 1, sizeof *f->callees);
    f->callees[f->ncallees++] = index;
}

/* Returns the end of the segment that contains an address; if `executable`, only segments with code count. NULL: there is
 * none. */
static const uint8_t *code_find_segment_end(const cli_machine_code *c, const uint8_t *address, bool executable)
{
    for (size_t i = 0; i < c->nsegments; i++)
        if (address >= c->segments[i].start && address < c->segments[i].end && c->segments[i].executable >= executable)
            return c->segments[i].end;
    return NULL;
}

static bool code_is_executable(const cli_machine_code *c, const uint8_t *p) { return code_find_segment_end(c, p, true) != NULL; }

/* Adds the functions that a memory operand refers to, to the callees of f. The operand is a function, or a table or struct whose
 * first TABLE words may hold addresses of functions. */
static void code_add_memory_callees(const cli_machine_code *c, code_function *f, const uint8_t *address)
{
    enum { MAX_TABLE_WORDS = 64 };
    const uint8_t *end = code_find_segment_end(c, address, false);
    if (code_is_executable(c, address))
        code_add_callee(c, f, address);
    for (size_t i = 0;
        end && !code_is_executable(c, address) && i < MAX_TABLE_WORDS && (size_t)(end - address) >= (i + 1) * sizeof(void *);
        i++) {
        const uint8_t *value;
        memcpy(&value, address + i * sizeof(void *), sizeof value);
        if (code_is_executable(c, value))
            code_add_callee(c, f, value);
    }
}

/* Adds the function whose address is at `slot` to the callees of f. Sets f->is_external_caller for a function of another
 * binary, and f->is_opaque for a null pointer, which is set later. */
static void code_add_pointer_callee(const cli_machine_code *c, code_function *f, const uint8_t *slot)
{
    const uint8_t *value = NULL, *end = code_find_segment_end(c, slot, false);
    if (end && (size_t)(end - slot) >= sizeof value)
        memcpy(&value, slot, sizeof value);
    if (code_is_executable(c, value))
        code_add_callee(c, f, value);
    f->is_external_caller |= value && !code_is_executable(c, value);
    f->is_opaque |= !value; /* the pointer is set later */
}

/* True if an instruction calls or jumps to an address that it reads from a pointer in memory. */
static bool code_is_pointer_branch(const code_instruction *in)
{
    const int which = in->modrm >> 3 & 7;
    return in->map == 0 && in->opcode == 0xFF && (which == 2 || which == 4) && in->memory;
}

/* Adds the target of a direct call or jump to the callees of f. If the target is a PLT stub, adds the pointer slot that the stub
 * jumps through. */
static void code_add_call_target(const cli_machine_code *c, code_function *f, const uint8_t *target)
{
    code_instruction in;
    const uint8_t *p = target, *end = code_find_segment_end(c, target, true);
    for (int i = 0; end && i < 2 && code_try_decode_instruction(p, end, &in); p += in.size, i++) /* endbr64 may be the first */
        if (code_is_pointer_branch(&in)) {
            code_add_pointer_callee(c, f, in.memory);
            return;
        }
    code_add_callee(c, f, target);
}

/* Control-flow graph of a function's instructions. Edges lead to the next instruction, to the target of the branch, or to
 * both. */
typedef struct code_graph {
    code_instruction *in;
    const uint8_t **at;
    int32_t (*next)[2]; /* indices; -1: none */
    int32_t *index;     /* index of the instruction that begins at each byte of the function; -1: none begins there */
    int32_t *component; /* by instruction: number of its strongly connected component: its loop, or the instruction alone */
    int32_t *size;      /* number of instructions in each component */
    int32_t n;
} code_graph;

static void code_graph_free(code_graph *g)
{
    free(g->in);
    free(g->at);
    free(g->next);
    free(g->index);
    free(g->component);
    free(g->size);
}

/* True if the next instruction does not follow this one: jmp, ret, ud2, hlt. */
static bool code_ends_flow(const code_instruction *in)
{
    const uint8_t op = in->opcode;
    if (in->encoding != CODE_LEGACY)
        return false;
    return in->map == 1 ? op == 0x0B
                        : in->map == 0 &&
            (op == 0xE9 || op == 0xEB || op == 0xC2 || op == 0xC3 || op == 0xF4 || (op == 0xFF && (in->modrm >> 3 & 7) == 4));
}

/* True if instruction i jumps through a table of offsets, as a switch does. The graph lacks these edges. */
static bool code_is_switch_jump(const code_graph *g, int32_t i)
{
    enum { SWITCH_WINDOW = 6, MOVSXD = 0x63 };
    const code_instruction *in = &g->in[i];
    if (in->encoding != CODE_LEGACY || in->map || in->opcode != 0xFF || (in->modrm >> 3) != (0xC0 >> 3 | 4))
        return false;
    for (int32_t k = i; k-- > 0 && k >= i - SWITCH_WINDOW;)
        if (g->in[k].encoding == CODE_LEGACY && !g->in[k].map && g->in[k].opcode == MOVSXD)
            return true;
    return false;
}

/* Decodes a function into a graph, which the caller frees. False: the function cannot be decoded. */
static bool code_graph_try_make(const code_function *f, code_graph *g)
{
    const size_t size = (size_t)(f->end - f->start);
    g->in = cli_realloc_array(NULL, size, sizeof *g->in);
    g->at = cli_realloc_array(NULL, size, sizeof *g->at);
    g->next = cli_realloc_array(NULL, size, sizeof *g->next);
    g->index = cli_realloc_array(NULL, size, sizeof *g->index);
    memset(g->index, -1, size * sizeof *g->index);
    for (const uint8_t *p = f->start; p < f->end; p += g->in[g->n++].size) {
        if (!code_try_decode_instruction(p, f->end, &g->in[g->n]))
            return false;
        g->at[g->n] = p;
        g->index[p - f->start] = g->n;
    }
    for (int32_t i = 0; i < g->n; i++) {
        const code_instruction *in = &g->in[i];
        const bool call = in->map == 0 && in->opcode == 0xE8;
        g->next[i][0] = code_ends_flow(in) || i + 1 == g->n ? -1 : i + 1;
        g->next[i][1] = !call && in->target >= f->start && in->target < f->end ? g->index[in->target - f->start] : -1;
    }
    return true;
}

/* Sets g->component and g->size: the strongly connected components of the graph (Tarjan, 1972), without recursion. A component
 * of several instructions is a loop. */
static void code_graph_set_components(code_graph *g)
{
    const size_t n = (size_t)g->n;
    int32_t *number = calloc(n + 1, sizeof *number), *low = calloc(n + 1, sizeof *low), *stack = calloc(n + 1, sizeof *stack),
            *path = calloc(n + 1, sizeof *path), count = 0, depth = 0, height = 0, ncomponents = 0;
    uint8_t *step = calloc(n + 1, 1); /* how many successors of an instruction were followed */
    g->component = cli_realloc_array(NULL, n, sizeof *g->component);
    g->size = cli_realloc_array(NULL, n, sizeof *g->size);
    memset(g->component, -1, n * sizeof *g->component);
    memset(g->size, 0, n * sizeof *g->size);
    for (int32_t root = 0; number && low && stack && path && step && root < g->n; root++) {
        if (number[root])
            continue;
        path[depth++] = root;
        while (depth) {
            const int32_t i = path[depth - 1];
            if (!number[i])
                number[i] = low[i] = ++count, stack[height++] = i;
            if (step[i] < 2) {
                const int32_t to = g->next[i][step[i]++];
                if (to >= 0 && !number[to])
                    path[depth++] = to;
                else if (to >= 0 && g->component[to] < 0 && number[to] < low[i])
                    low[i] = number[to];
                continue;
            }
            for (int32_t k = -1; low[i] == number[i] && k != i; g->size[ncomponents]++)
                g->component[k = stack[--height]] = ncomponents;
            ncomponents += low[i] == number[i];
            if (--depth && low[i] < low[path[depth - 1]])
                low[path[depth - 1]] = low[i];
        }
    }
    free(number);
    free(low);
    free(stack);
    free(path);
    free(step);
}

/* Decodes a function: sets its callees, and the flags for the instructions in its loops. */
static void code_decode_function(const cli_machine_code *c, code_function *f)
{
    code_graph g = { 0 };
    f->decoded = true;
    f->is_opaque = !code_graph_try_make(f, &g);
    if (!f->is_opaque)
        code_graph_set_components(&g);
    bool switches = false; /* the graph lacks a switch's edges, so every vector instruction counts as one in a loop */
    for (int32_t i = 0; i < g.n && !f->is_opaque; i++)
        switches |= code_is_switch_jump(&g, i);
    for (int32_t i = 0; i < g.n && !f->is_opaque; i++) {
        const code_instruction *in = &g.in[i];
        if (code_is_pointer_branch(in))
            code_add_pointer_callee(c, f, in->memory);
        else if (in->memory)
            code_add_memory_callees(c, f, in->memory);
        if (in->target && !(in->target >= f->start && in->target < f->end))
            code_add_call_target(c, f, in->target);
        const bool loop = g.component[i] >= 0 && (g.size[g.component[i]] > 1 || g.next[i][1] == i);
        f->has_vectors |= (loop || switches) && code_is_avx(in);
        f->has_legacy_sse |= loop && code_is_sse(in);
        f->has_stores |= loop && code_is_store(in);
    }
    code_graph_free(&g);
}

/* ---- The table of functions ---------------------------------------------------------------------------------------------- */

typedef struct code_search {
    const uint8_t *address;
    cli_machine_code *code;
} code_search;

/* For dl_iterate_phdr(): stores the loaded object that contains the address. */
static int code_match_object(struct dl_phdr_info *info, size_t size, void *user)
{
    code_search *s = user;
    cli_machine_code c = { 0 };
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        const uint8_t *start = (const uint8_t *)(uintptr_t)(info->dlpi_addr + h->p_vaddr), *end = start + h->p_memsz;
        if (h->p_type == PT_GNU_EH_FRAME)
            c.eh_frame_table = start;
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_R) || c.nsegments == CODE_MAX_SEGMENTS)
            continue;
        c.segments[c.nsegments].start = start;
        c.segments[c.nsegments].end = end;
        c.segments[c.nsegments++].executable = h->p_flags & PF_X;
    }
    if (!code_is_executable(&c, s->address))
        return 0;
    s->code = cli_realloc_array(NULL, 1, sizeof *s->code);
    *s->code = c;
    return 1;
}

static int code_compare_addresses(const void *a, const void *b)
{
    const code_function *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Reads the functions of .eh_frame_hdr in the encodings that linkers write. False: the table has another encoding or invalid
 * addresses. */
static bool code_try_read_function_table(cli_machine_code *c)
{
    enum { VERSION = 1, PCREL_4 = 0x1B, UNSIGNED_4 = 0x03, DATAREL_4 = 0x3B };
    const uint8_t *t = c->eh_frame_table;
    if (!t || t[0] != VERSION || t[1] != PCREL_4 || t[2] != UNSIGNED_4 || t[3] != DATAREL_4)
        return false;
    c->n = (size_t)code_read_int32(t + 8);
    c->functions = cli_realloc_array(NULL, c->n, sizeof *c->functions);
    memset(c->functions, 0, c->n * sizeof *c->functions);
    for (size_t i = 0; i < c->n; i++) {
        code_function *f = &c->functions[i];
        const uint8_t *fde = t +
            code_read_int32(t + 16 + 8 * i); /* an entry's length, its CIE, the function's first byte and its number of bytes */
        f->start = t + code_read_int32(t + 12 + 8 * i);
        f->end = f->start + (uint32_t)code_read_int32(fde + 12);
        if (fde + 8 + code_read_int32(fde + 8) != f->start || !code_is_executable(c, f->start) || f->end <= f->start ||
            !code_is_executable(c, f->end - 1))
            return false;
    }
    qsort(c->functions, c->n, sizeof *c->functions, code_compare_addresses);
    return true;
}

cli_machine_code *cli_machine_code_open(const void *address)
{
    code_search s = { .address = address };
    dl_iterate_phdr(code_match_object, &s);
    if (s.code && code_try_read_function_table(s.code))
        return s.code;
    cli_machine_code_close(s.code);
    return NULL;
}

/* Marks a function, and all functions that it refers to directly or indirectly, in `reached`. Decodes them if necessary. */
static void code_mark_reached(cli_machine_code *c, size_t index, bool *reached)
{
    if (index == c->n || reached[index])
        return;
    reached[index] = true;
    code_function *f = &c->functions[index];
    if (!f->decoded)
        code_decode_function(c, f);
    for (size_t i = 0; i < f->ncallees; i++)
        code_mark_reached(c, f->callees[i], reached);
}

bool cli_machine_code_is_base(
    cli_machine_code *c, const void *entry, const void *const *base_entries, size_t nbase_entries, bool only_libc)
{
    const size_t first = code_find_function_index(c, entry);
    bool *reached = calloc(2 * c->n + 1, sizeof *reached), *shared = reached ? reached + c->n : NULL;
    bool base = false, has_vectors = false, unclear = !reached || first == c->n;
    if (!unclear)
        code_mark_reached(c, first, reached);
    for (size_t i = 0; !unclear && i < nbase_entries; i++)
        code_mark_reached(c, code_find_function_index(c, base_entries[i]), shared);
    for (size_t i = 0; !unclear && i < c->n; i++)
        if (reached[i]) {
            const code_function *f = &c->functions[i];
            base |= f->has_legacy_sse || (f->has_stores && shared[i] && i != first);
            has_vectors |= f->has_vectors;
            unclear |= f->is_opaque || (f->is_external_caller && !only_libc);
        }
    free(reached);
    return base && !has_vectors && !unclear;
}

#else

cli_machine_code *cli_machine_code_open(const void *address)
{
    (void)address;
    return NULL;
}

bool cli_machine_code_is_base(
    cli_machine_code *c, const void *entry, const void *const *base_entries, size_t nbase_entries, bool only_libc)
{
    (void)c, (void)entry, (void)base_entries, (void)nbase_entries, (void)only_libc;
    return false;
}

#endif
