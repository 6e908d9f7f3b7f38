/* Checks of an untrusted ELF file. All data is copied out of the file by get(), which checks the extent first; a count from the
 * file never sizes a loop or an allocation before it was checked against the file's own size. */
#include "registry/elf_check.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64, PAGE = 4096, RELATIVE = R_X86_64_RELATIVE };
#elif defined(__aarch64__)
enum { MACHINE = EM_AARCH64, PAGE = 65536, RELATIVE = R_AARCH64_RELATIVE };
#elif defined(__riscv)
enum { MACHINE = EM_RISCV, PAGE = 4096, RELATIVE = R_RISCV_RELATIVE };
#elif defined(__powerpc64__)
enum { MACHINE = EM_PPC64, PAGE = 65536, RELATIVE = R_PPC64_RELATIVE };
#else
enum { MACHINE = EM_NONE, PAGE = 65536, RELATIVE = 0 };
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { BYTE_ORDER_HERE = ELFDATA2LSB };
#else
enum { BYTE_ORDER_HERE = ELFDATA2MSB };
#endif

enum {
    LARGEST_HOLE = 1 << 26,      /* bytes that the headers name and that belong to no section: alignment */
    LARGEST_NOT_LOADED = 1 << 28 /* bytes of sections after the last segment: for debuggers */
};

typedef struct image {
    const unsigned char *data;
    uint64_t size;
    const char *where;
    Elf64_Ehdr head;
    uint64_t dynamic_at, dynamic_size; /* in the file */
    uint64_t symbols_at, nsymbols;     /* in the file */
    uint64_t strings_at, strings_size;
} image;

static bool inside(uint64_t at, uint64_t n, uint64_t size) { return at <= size && n <= size - at; }

static bool get(const image *im, uint64_t at, void *to, size_t n)
{
    if (!inside(at, n, im->size))
        return false;
    memcpy(to, im->data + at, n);
    return true;
}

static int fail(const image *im, const char *format, ...) DV__PRINTF(2, 3);
static int fail(const image *im, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return dv_fail(DV_EBINARY, "%s: not a usable operator binary: %s", im->where, what);
}

static int truncated(const image *im, const char *what, uint64_t at, uint64_t n)
{
    return fail(im, "truncated or corrupt: %s (%llu bytes at %llu) is not inside the file's %llu bytes", what,
        (unsigned long long)n, (unsigned long long)at, (unsigned long long)im->size);
}

static const char *machine_name(unsigned machine)
{
    switch (machine) {
    case EM_386: return "i386";
    case EM_X86_64: return "x86-64";
    case EM_ARM: return "arm";
    case EM_AARCH64: return "aarch64";
    case EM_RISCV: return "riscv";
    case EM_PPC64: return "ppc64";
    case EM_S390: return "s390";
    case EM_LOONGARCH: return "loongarch";
    default: return "unknown";
    }
}

/* ---- Headers ------------------------------------------------------------------------------------------------------------- */

/* The ELF header; the rest is read only if it is right. */
static int check_start(image *im)
{
    const Elf64_Ehdr *h = &im->head;
    if (im->size < EI_NIDENT || memcmp(im->data, ELFMAG, SELFMAG))
        return fail(
            im, im->size < EI_NIDENT ? "truncated: %llu bytes" : "not an ELF file (%llu bytes)", (unsigned long long)im->size);
    if (im->data[EI_CLASS] != ELFCLASS64)
        return fail(im, "a %s-bit ELF file, expected 64-bit", im->data[EI_CLASS] == ELFCLASS32 ? "32" : "strange");
    if (im->data[EI_DATA] != BYTE_ORDER_HERE)
        return fail(im, "of the other byte order");
    if (!get(im, 0, &im->head, sizeof im->head))
        return truncated(im, "the ELF header", 0, sizeof im->head);
    if (h->e_ident[EI_VERSION] != EV_CURRENT || h->e_version != EV_CURRENT)
        return fail(im, "ELF version %u, expected 1", h->e_version);
    if (h->e_machine != MACHINE)
        return fail(im, "made for %s (machine %u), this is %s", machine_name(h->e_machine), h->e_machine, machine_name(MACHINE));
    if (h->e_type != ET_DYN)
        return fail(im, "not a shared object (ELF type %u%s)", h->e_type,
            h->e_type == ET_EXEC      ? ", a program"
                : h->e_type == ET_REL ? ", an object file"
                                      : "");
    if (h->e_ehsize != sizeof(Elf64_Ehdr) || h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phnum == 0 || h->e_phnum == PN_XNUM)
        return fail(im, "corrupt ELF header");
    return DV_OK;
}

/* Where the two tables of headers are. */
static int check_tables(const image *im)
{
    const Elf64_Ehdr *h = &im->head;
    if (!inside(h->e_phoff, (uint64_t)h->e_phnum * sizeof(Elf64_Phdr), im->size))
        return truncated(im, "the program header table", h->e_phoff, (uint64_t)h->e_phnum * sizeof(Elf64_Phdr));
    if (h->e_shoff && h->e_shnum) {
        if (h->e_shentsize != sizeof(Elf64_Shdr))
            return fail(im, "corrupt ELF header");
        if (!inside(h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr), im->size))
            return truncated(im, "the section header table", h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr));
    }
    return DV_OK;
}

static Elf64_Phdr segment(const image *im, unsigned i)
{
    Elf64_Phdr p;
    memcpy(&p, im->data + im->head.e_phoff + i * sizeof p, sizeof p);
    return p;
}

static int check_segments(image *im)
{
    uint64_t end = 0;
    unsigned loads = 0, dynamics = 0;
    for (unsigned i = 0; i < im->head.e_phnum; i++) {
        const Elf64_Phdr p = segment(im, i);
        char what[40];
        snprintf(what, sizeof what, "segment %u (type %#x)", i, (unsigned)p.p_type);
        if (p.p_type != PT_NULL && p.p_type != PT_GNU_STACK && !inside(p.p_offset, p.p_filesz, im->size))
            return truncated(im, what, p.p_offset, p.p_filesz);
        if (p.p_type == PT_LOAD) {
            const bool power = p.p_align && !(p.p_align & (p.p_align - 1));
            if (p.p_filesz > p.p_memsz || !inside(p.p_vaddr, p.p_memsz, UINT64_MAX / 2) ||
                (p.p_align > 1 && (!power || (p.p_vaddr - p.p_offset) % p.p_align)) || p.p_vaddr < end)
                return fail(im, "corrupt: %s", what);
            end = p.p_vaddr + p.p_memsz;
            loads++;
        } else if (p.p_type == PT_DYNAMIC) {
            dynamics++;
            im->dynamic_at = p.p_offset;
            im->dynamic_size = p.p_filesz;
        }
    }
    if (!loads || dynamics != 1)
        return fail(im, "corrupt: %u segments to load and %u dynamic sections", loads, dynamics);
    return DV_OK;
}

/* Where in the file n bytes at this address of the image are; false unless they come from the file and lie in one segment. */
static bool in_file(const image *im, uint64_t address, uint64_t n, uint64_t *at)
{
    for (unsigned i = 0; i < im->head.e_phnum; i++) {
        const Elf64_Phdr p = segment(im, i);
        if (p.p_type == PT_LOAD && p.p_flags & PF_R && address >= p.p_vaddr && inside(address - p.p_vaddr, n, p.p_filesz)) {
            *at = p.p_offset + (address - p.p_vaddr);
            return true;
        }
    }
    return false;
}

/* Does a segment with these permissions hold n bytes at this address? */
static bool in_memory(const image *im, uint64_t address, uint64_t n, unsigned flags)
{
    for (unsigned i = 0; i < im->head.e_phnum; i++) {
        const Elf64_Phdr p = segment(im, i);
        if (p.p_type == PT_LOAD && (p.p_flags & flags) == flags && address >= p.p_vaddr &&
            inside(address - p.p_vaddr, n, p.p_memsz))
            return true;
    }
    return false;
}

/* Check that a section is mapped at its address, and from its own offset in the file. */
static bool consistent(const image *im, uint64_t address, uint64_t offset, uint64_t n)
{
    uint64_t at;
    return !n || (in_file(im, address, n, &at) && at == offset);
}

static int check_placement(const image *im)
{
    for (unsigned i = 0; i < im->head.e_phnum; i++) {
        const Elf64_Phdr p = segment(im, i);
        if (p.p_type == PT_LOAD || p.p_type == PT_NULL || p.p_type == PT_GNU_STACK)
            continue;
        const bool power = !(p.p_align & (p.p_align - 1));
        bool good = power && p.p_filesz <= p.p_memsz &&
            (p.p_type == PT_GNU_RELRO || consistent(im, p.p_vaddr, p.p_offset, p.p_filesz));
        if (p.p_type == PT_DYNAMIC) /* the loader writes there */
            good = good && in_memory(im, p.p_vaddr, p.p_memsz, PF_W);
        if (p.p_type == PT_GNU_RELRO) /* and makes it read-only later; lld rounds its end up to a page */
            good = good &&
                (in_memory(im, p.p_vaddr, p.p_memsz, PF_W) ||
                    in_memory(im, p.p_vaddr, p.p_memsz > PAGE ? p.p_memsz - PAGE + 1 : 1, PF_W));
        if (!good)
            return fail(im, "corrupt: segment %u (type %#x)", i, (unsigned)p.p_type);
    }
    return DV_OK;
}

static Elf64_Shdr section(const image *im, unsigned i)
{
    Elf64_Shdr s;
    memcpy(&s, im->data + im->head.e_shoff + i * sizeof s, sizeof s);
    return s;
}

static unsigned sections(const image *im) { return im->head.e_shoff ? im->head.e_shnum : 0; }

static int check_sections(const image *im)
{
    for (unsigned i = 0; i < sections(im); i++) {
        const Elf64_Shdr s = section(im, i);
        char what[40];
        snprintf(what, sizeof what, "section %u", i);
        if (s.sh_type != SHT_NULL && s.sh_type != SHT_NOBITS && !inside(s.sh_offset, s.sh_size, im->size))
            return truncated(im, what, s.sh_offset, s.sh_size);
        if (s.sh_flags & SHF_ALLOC && s.sh_type != SHT_NULL && s.sh_type != SHT_NOBITS &&
            !consistent(im, s.sh_addr, s.sh_offset, s.sh_size))
            return fail(im, "corrupt: %s is not where its segment is", what);
    }
    return DV_OK;
}

/* ---- The dynamic section ------------------------------------------------------------------------------------------------- */

/* The last value of a tag, which the loader uses; false if the tag is missing. check_dynamic() has found DT_NULL before.
 */
static bool dynamic(const image *im, int64_t tag, uint64_t *value)
{
    bool found = false;
    for (uint64_t at = im->dynamic_at;; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, im->data + at, sizeof d);
        if (d.d_tag == DT_NULL)
            return found;
        if (d.d_tag == tag) {
            *value = d.d_un.d_val;
            found = true;
        }
    }
}

static int check_dynamic(const image *im)
{
    uint64_t mapped;
    bool ended = false, found = false;
    if (im->dynamic_at % 8 || im->dynamic_size % sizeof(Elf64_Dyn))
        return fail(im, "corrupt: the dynamic section");
    for (unsigned i = 0; i < im->head.e_phnum && !found; i++) { /* the loader reads it at its address */
        const Elf64_Phdr p = segment(im, i);
        found = p.p_type == PT_DYNAMIC && in_file(im, p.p_vaddr, p.p_filesz, &mapped) && mapped == im->dynamic_at;
    }
    for (uint64_t i = 0; i < im->dynamic_size && !ended; i += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        ended = get(im, im->dynamic_at + i, &d, sizeof d) && d.d_tag == DT_NULL;
    }
    return found && ended ? DV_OK : fail(im, "corrupt: the dynamic section");
}

/* Check that the table given by an address tag and a size tag is inside the file. */
static int check_table(
    const image *im, const char *what, int64_t tag, int64_t size_tag, uint64_t entry, uint64_t *at, uint64_t *size)
{
    uint64_t address = 0, bytes = 0;
    *at = *size = 0;
    if (!dynamic(im, tag, &address))
        return DV_OK;
    if (!dynamic(im, size_tag, &bytes) || bytes % entry || !in_file(im, address, bytes, at))
        return fail(
            im, "corrupt: %s (%llu bytes at address %#llx)", what, (unsigned long long)bytes, (unsigned long long)address);
    *size = bytes;
    return DV_OK;
}

/* The number of symbols, from the hash tables. */
static int count_symbols(image *im)
{
    uint64_t address = 0, at = 0;
    uint32_t head[4], bucket, word;
    im->nsymbols = 0;
    if (dynamic(im, DT_HASH, &address)) {
        if (!in_file(im, address, 8, &at) || !get(im, at, head, 8) ||
            !in_file(im, address, 8 + ((uint64_t)head[0] + head[1]) * 4, &at))
            return fail(im, "corrupt: the hash table of its symbols");
        im->nsymbols = head[1];
    }
    if (!dynamic(im, DT_GNU_HASH, &address))
        return im->nsymbols ? DV_OK : fail(im, "corrupt: no hash table of its symbols");
    if (!in_file(im, address, 16, &at) || !get(im, at, head, 16))
        return fail(im, "corrupt: the hash table of its symbols");
    const uint64_t buckets = 16 + (uint64_t)head[2] * 8, chains = buckets + (uint64_t)head[0] * 4;
    if (!head[0] || !head[2] || (head[2] & (head[2] - 1)) || head[3] > 63 || !in_file(im, address, chains, &at))
        return fail(im, "corrupt: the hash table of its symbols");
    uint64_t last = head[1], words = 0;
    for (uint64_t i = 0; i < head[0]; i++) {
        memcpy(&bucket, im->data + at + buckets + i * 4, 4);
        if (bucket && bucket < head[1])
            return fail(im, "corrupt: the hash table of its symbols");
        for (uint64_t s = bucket; s; s++) { /* a chain ends at an odd hash; no two chains share a word */
            uint64_t here;
            if (words++ > im->size / 4 || !in_file(im, address + chains + (s - head[1]) * 4, 4, &here) ||
                !get(im, here, &word, 4))
                return fail(im, "corrupt: the hash table of its symbols");
            last = s >= last ? s + 1 : last;
            if (word & 1)
                break;
        }
    }
    im->nsymbols = last > im->nsymbols ? last : im->nsymbols;
    return DV_OK;
}

static Elf64_Sym symbol(const image *im, uint64_t i)
{
    Elf64_Sym s;
    memcpy(&s, im->data + im->symbols_at + i * sizeof s, sizeof s);
    return s;
}

static int check_symbols(image *im)
{
    uint64_t address = 0, entry = sizeof(Elf64_Sym);
    int status = check_table(im, "its strings", DT_STRTAB, DT_STRSZ, 1, &im->strings_at, &im->strings_size);
    if (status)
        return status;
    if (!im->strings_size || im->data[im->strings_at + im->strings_size - 1])
        return fail(im, "corrupt: its strings do not end");
    if ((status = count_symbols(im)))
        return status;
    dynamic(im, DT_SYMENT, &entry);
    if (!dynamic(im, DT_SYMTAB, &address) || entry != sizeof(Elf64_Sym) || im->nsymbols > im->size / entry ||
        !in_file(im, address, im->nsymbols * entry, &im->symbols_at))
        return fail(im, "corrupt: the table of its %llu symbols", (unsigned long long)im->nsymbols);
    for (uint64_t i = 0; i < im->nsymbols; i++)
        if (symbol(im, i).st_name >= im->strings_size)
            return fail(im, "corrupt: the name of symbol %llu", (unsigned long long)i);
    return DV_OK;
}

/* Check the names of the libraries that the loader will look for. */
static int check_needed(const image *im)
{
    for (uint64_t at = im->dynamic_at;; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, im->data + at, sizeof d);
        if (d.d_tag == DT_NULL)
            return DV_OK;
        if ((d.d_tag == DT_NEEDED || d.d_tag == DT_SONAME || d.d_tag == DT_RPATH || d.d_tag == DT_RUNPATH) &&
            d.d_un.d_val >= im->strings_size)
            return fail(im, "corrupt: a name in the dynamic section");
    }
}

/* Check the entries that describe relocations: the loader asserts these conditions and ends the process if one fails. */
static int check_relocation_form(const image *im)
{
    static const struct {
        int64_t table, entry;
        uint64_t size;
    } forms[] = { { DT_RELA, DT_RELAENT, sizeof(Elf64_Rela) }, { DT_REL, DT_RELENT, sizeof(Elf64_Rel) },
        { 36 /* DT_RELR */, 37 /* DT_RELRENT */, 8 } };
    uint64_t value = DT_RELA, entry = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (dynamic(im, forms[i].table, &value) && (!dynamic(im, forms[i].entry, &entry) || entry != forms[i].size))
            return fail(im, "corrupt: the size of its relocations");
    const bool calls = dynamic(im, DT_JMPREL, &entry), kind = dynamic(im, DT_PLTREL, &value);
    if (calls != kind || (kind && value != DT_RELA))
        return fail(im, "corrupt: the kind of its relocations for calls (DT_PLTREL)");
    return DV_OK;
}

/* DT_RELACOUNT: the number of relative relocations at the front; the loader trusts it. */
static int check_relative(const image *im)
{
    uint64_t count = 0, at, size;
    if (!dynamic(im, DT_RELACOUNT, &count))
        return DV_OK;
    const int status = check_table(im, "its relocations", DT_RELA, DT_RELASZ, sizeof(Elf64_Rela), &at, &size);
    bool good = !status && count <= size / sizeof(Elf64_Rela);
    for (uint64_t i = 0; good && i < count; i++) {
        Elf64_Rela r;
        memcpy(&r, im->data + at + i * sizeof r, sizeof r);
        good = ELF64_R_TYPE(r.r_info) == RELATIVE;
    }
    return good ? DV_OK : fail(im, "corrupt: the count of its relative relocations (DT_RELACOUNT)");
}

static int check_relocations(const image *im)
{
    static const struct { int64_t tag, size_tag; } tables[] = { { DT_RELA, DT_RELASZ }, { DT_JMPREL, DT_PLTRELSZ } };
    uint64_t at, size;
    int status = check_relocation_form(im);
    if (status || (status = check_relative(im)))
        return status;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        if ((status = check_table(im, "its relocations", tables[t].tag, tables[t].size_tag, sizeof(Elf64_Rela), &at, &size)))
            return status;
        for (uint64_t i = 0; i < size; i += sizeof(Elf64_Rela)) {
            Elf64_Rela r;
            memcpy(&r, im->data + at + i, sizeof r);
            if (ELF64_R_SYM(r.r_info) >= im->nsymbols || (r.r_info && !in_memory(im, r.r_offset, 8, PF_W)))
                return fail(im, "corrupt: relocation %llu is not in memory that can be written (was it compiled without -fPIC?)",
                    (unsigned long long)(i / sizeof r));
        }
    }
    if ((status = check_table(im, "its relocations", DT_REL, DT_RELSZ, sizeof(Elf64_Rel), &at, &size)))
        return status;
    return check_table(im, "its relocations", 36 /* DT_RELR */, 35 /* DT_RELRSZ */, 8, &at, &size);
}

/* The dynamic section and the section table agree about these tables. Nothing to compare in a binary without sections. */
static int check_twins(const image *im)
{
    static const struct {
        int64_t tag, size_tag; /* size_tag 0: it has none */
        unsigned type;
    } twins[] = { { DT_INIT_ARRAY, DT_INIT_ARRAYSZ, SHT_INIT_ARRAY }, { DT_FINI_ARRAY, DT_FINI_ARRAYSZ, SHT_FINI_ARRAY },
        { DT_VERNEED, 0, SHT_GNU_verneed }, { DT_VERDEF, 0, SHT_GNU_verdef }, { DT_VERSYM, 0, SHT_GNU_versym } };
    for (size_t t = 0; t < sizeof twins / sizeof *twins && sections(im); t++) {
        uint64_t address = 0, size = 0;
        const bool there = dynamic(im, twins[t].tag, &address);
        const bool sized = twins[t].size_tag && dynamic(im, twins[t].size_tag, &size);
        bool any = false, same = false;
        for (unsigned i = 0; i < sections(im); i++) {
            const Elf64_Shdr s = section(im, i);
            const bool of = s.sh_type == twins[t].type && s.sh_flags & SHF_ALLOC;
            any |= of;
            same |= of && s.sh_addr == address && (!sized || s.sh_size == size);
        }
        if (there ? !same : any || sized)
            return fail(im, "corrupt: the dynamic section and the sections differ (tag %#llx)", (unsigned long long)twins[t].tag);
    }
    return DV_OK;
}

/* Does a function begin at this address, as far as the file tells: a symbol, or the start of a section of code? A stripped binary
 * does not name a function of its own, so there any code will do. */
static bool is_function(const image *im, uint64_t address)
{
    bool stripped = true;
    if (!in_memory(im, address, 1, PF_X))
        return false;
    for (uint64_t i = 0; i < im->nsymbols; i++)
        if (symbol(im, i).st_value == address && symbol(im, i).st_shndx != SHN_UNDEF)
            return true;
    for (unsigned i = 0; i < sections(im); i++) {
        const Elf64_Shdr s = section(im, i);
        if (s.sh_flags & SHF_EXECINSTR && address - s.sh_addr < s.sh_size && (s.sh_entsize || s.sh_addr == address))
            return !s.sh_entsize; /* entries are those of the PLT */
        stripped &= s.sh_type != SHT_SYMTAB;
        for (uint64_t at = 0; s.sh_type == SHT_SYMTAB && s.sh_size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
            Elf64_Sym one;
            memcpy(&one, im->data + s.sh_offset + at, sizeof one);
            if (one.st_value == address && ELF64_ST_TYPE(one.st_info) == STT_FUNC)
                return true;
        }
    }
    return stripped;
}

/* The functions of an array are addresses that relocations put there: each is code of this binary, or a symbol's. */
enum { MOST_FUNCTIONS = 1 << 16 };
typedef struct filled {
    uint64_t address, n; /* of the array, in words of 8 bytes */
    unsigned char bits[MOST_FUNCTIONS / 8];
} filled;

static bool fill(const image *im, filled *f, uint64_t at, uint64_t function, bool of_symbol)
{
    if (at + 7 < f->address || at >= f->address + 8 * f->n)
        return true; /* of something else */
    if ((at - f->address) % 8 || !(of_symbol || in_memory(im, function, 1, PF_X)))
        return false;
    const uint64_t i = (at - f->address) / 8;
    f->bits[i / 8] |= (unsigned char)(1u << i % 8);
    return true;
}

/* DT_RELR: an even word is the address of a relocation, an odd one has a bit for each of the next 63 words. The address that it
 * adds to is in the image itself. */
static bool fill_relr(const image *im, filled *f)
{
    uint64_t at, size, word, here, value, next = 0;
    if (check_table(im, "its relocations", 36 /* DT_RELR */, 35 /* DT_RELRSZ */, 8, &at, &size))
        return false;
    for (uint64_t i = 0; i < size; i += 8) {
        memcpy(&word, im->data + at + i, sizeof word);
        uint64_t first = word & 1 ? next : word, bits = word & 1 ? word >> 1 : 1;
        next = word & 1 ? next + 63 * 8 : word + 8;
        for (; bits; bits >>= 1, first += 8)
            if (bits & 1 && first + 7 >= f->address && first < f->address + 8 * f->n &&
                (!in_file(im, first, 8, &here) || !get(im, here, &value, 8) || !fill(im, f, first, value, false)))
                return false;
    }
    return true;
}

static int check_array(const image *im, const char *what, int64_t tag, int64_t size_tag)
{
    filled f = { .n = 0 };
    uint64_t at, size, word;
    int status = check_table(im, what, tag, size_tag, 8, &at, &size);
    if (status || !size)
        return status;
    dynamic(im, tag, &f.address);
    f.n = size / 8;
    bool good = f.n <= MOST_FUNCTIONS && f.address % 8 == 0 && in_memory(im, f.address, size, PF_W) && fill_relr(im, &f);
    good = good && !check_table(im, "its relocations", DT_RELA, DT_RELASZ, sizeof(Elf64_Rela), &at, &size);
    for (uint64_t i = 0; good && i < size; i += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        memcpy(&r, im->data + at + i, sizeof r);
        good = !r.r_info || fill(im, &f, r.r_offset, (uint64_t)r.r_addend, ELF64_R_SYM(r.r_info));
    }
    for (uint64_t i = 0; good && i < f.n; i++) {
        word = f.bits[i / 8] >> i % 8 & 1;
        good = word;
    }
    return good ? DV_OK : fail(im, "corrupt: %s are not functions", what); /* the loader would call anything */
}

static int check_functions(const image *im)
{
    static const struct { int64_t tag, flags; } addresses[] = { { DT_VERNEED, PF_R }, { DT_VERDEF, PF_R }, { DT_PLTGOT, PF_W } };
    uint64_t address = 0;
    int status = check_twins(im);
    if (status || (status = check_array(im, "its initialisers", DT_INIT_ARRAY, DT_INIT_ARRAYSZ)) ||
        (status = check_array(im, "its finalisers", DT_FINI_ARRAY, DT_FINI_ARRAYSZ)))
        return status;
    if ((dynamic(im, DT_INIT, &address) && !is_function(im, address)) ||
        (dynamic(im, DT_FINI, &address) && !is_function(im, address)))
        return fail(im, "corrupt: its initialiser or finaliser is not a function");
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (dynamic(im, addresses[i].tag, &address) && !in_memory(im, address, 4, (unsigned)addresses[i].flags))
            return fail(im, "corrupt: the dynamic section points outside the image");
    return DV_OK;
}

/* ---- Versions of symbols ------------------------------------------------------------------------------------------------- */

/* Is a string of its strings the name of a library that it needs? The loader asserts it of each library with versions. */
static bool is_needed(const image *im, uint64_t name)
{
    const char *strings = (const char *)im->data + im->strings_at;
    for (uint64_t at = im->dynamic_at;; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, im->data + at, sizeof d);
        if (d.d_tag == DT_NULL)
            return false;
        if (d.d_tag == DT_NEEDED && !strcmp(strings + d.d_un.d_val, strings + name))
            return true;
    }
}

/* The chains of DT_VERNEED, as the loader walks them. *most: the largest number of a version. */
static bool check_needed_versions(const image *im, uint64_t address, uint64_t *most)
{
    Elf64_Verneed need = { .vn_next = 0 };
    uint64_t steps = 0, at;
    do {
        address += need.vn_next;
        if (steps++ > im->size / sizeof need || !in_file(im, address, sizeof need, &at) || !get(im, at, &need, sizeof need) ||
            need.vn_version != 1 || need.vn_file >= im->strings_size || !is_needed(im, need.vn_file))
            return false;
        Elf64_Vernaux one = { .vna_next = need.vn_aux };
        uint64_t where = address;
        do {
            where += one.vna_next;
            if (steps++ > im->size / sizeof one || !in_file(im, where, sizeof one, &at) || !get(im, at, &one, sizeof one) ||
                one.vna_name >= im->strings_size)
                return false;
            *most = (one.vna_other & 0x7fffu) > *most ? one.vna_other & 0x7fffu : *most;
        } while (one.vna_next);
    } while (need.vn_next);
    return true;
}

/* Those of DT_VERDEF: its own versions. */
static bool check_own_versions(const image *im, uint64_t address, uint64_t *most)
{
    Elf64_Verdef own = { .vd_next = 0 };
    Elf64_Verdaux name;
    uint64_t steps = 0, at;
    do {
        address += own.vd_next;
        if (steps++ > im->size / sizeof own || !in_file(im, address, sizeof own, &at) || !get(im, at, &own, sizeof own) ||
            own.vd_version != 1 || !in_file(im, address + own.vd_aux, sizeof name, &at) || !get(im, at, &name, sizeof name) ||
            name.vda_name >= im->strings_size)
            return false;
        *most = (own.vd_ndx & 0x7fffu) > *most ? own.vd_ndx & 0x7fffu : *most;
    } while (own.vd_next);
    return true;
}

/* Symbols have versions when there are versions, and no number beyond them: the loader looks neither up. */
static int check_versions(const image *im)
{
    uint64_t needed = 0, own = 0, numbers = 0, most = 0, at = 0;
    const bool has_needed = dynamic(im, DT_VERNEED, &needed), has_own = dynamic(im, DT_VERDEF, &own);
    bool good = dynamic(im, DT_VERSYM, &numbers) == (has_needed || has_own);
    good = good && (!has_needed || check_needed_versions(im, needed, &most)) && (!has_own || check_own_versions(im, own, &most));
    good = good && (!numbers || in_file(im, numbers, im->nsymbols * 2, &at));
    for (uint64_t i = 0; good && numbers && i < im->nsymbols; i++) {
        uint16_t number;
        memcpy(&number, im->data + at + i * 2, sizeof number);
        good = (number & 0x7fffu) <= (most > 1 ? most : 1);
    }
    return good ? DV_OK : fail(im, "corrupt: the versions of its symbols");
}

/* ---- What it exports ----------------------------------------------------------------------------------------------------- */

static int check_exports(const image *im)
{
    static const char prefix[] = "dovetail_library_";
    char others[200] = "";
    for (uint64_t i = 0; i < im->nsymbols; i++) {
        const Elf64_Sym s = symbol(im, i);
        const char *name = (const char *)im->data + im->strings_at + s.st_name;
        const unsigned bind = ELF64_ST_BIND(s.st_info);
        if (s.st_shndx == SHN_UNDEF || (bind != STB_GLOBAL && bind != STB_WEAK) || strncmp(name, prefix, sizeof prefix - 1))
            continue;
        name += sizeof prefix - 1;
        if (!strcmp(name, "1")) {
            if (ELF64_ST_TYPE(s.st_info) != STT_OBJECT || s.st_value % 8 || !in_memory(im, s.st_value, 8, PF_R))
                return fail(im, "dovetail_library_1 is not a descriptor");
            return DV_OK;
        }
        const size_t used = strlen(others);
        if (*name && strspn(name, "0123456789") == strlen(name))
            snprintf(others + used, sizeof others - used, "%s%.8s", used ? ", " : "", name);
    }
    if (*others)
        return dv_fail(DV_EABI, "%s: made for operator ABI %s, this runtime has ABI %d (it exports dovetail_library_%s)",
            im->where, others, DV_ABI_MAJOR, others);
    return fail(im, "it exports no dovetail_library_%d (is DV_LIBRARY missing?)", DV_ABI_MAJOR);
}

/* Adds n bytes at this place of the file to what the headers name, which ends at *end. */
static int name_bytes(const image *im, const char *what, uint64_t at, uint64_t n, uint64_t *end)
{
    if (!inside(at, n, im->size))
        return truncated(im, what, at, n);
    *end = at + n > *end ? at + n : *end;
    return DV_OK;
}

int dv__elf_extent(dv__elf_read read, void *user, size_t size, const char *where, size_t *out)
{
    unsigned char start[sizeof(Elf64_Ehdr)] = { 0 };
    image im = { .data = start, .size = size, .where = where };
    const Elf64_Ehdr *h = &im.head;
    uint64_t end = 0, sum = 0;
    int status = read(user, 0, start, size < sizeof start ? size : sizeof start);
    if (status || (status = check_start(&im)) || (status = check_tables(&im)))
        return status;
    for (unsigned i = 0; i < h->e_phnum && !status; i++) {
        Elf64_Phdr p;
        if (!(status = read(user, h->e_phoff + i * sizeof p, &p, sizeof p)) && p.p_type != PT_NULL && p.p_type != PT_GNU_STACK)
            status = name_bytes(&im, "a segment", p.p_offset, p.p_filesz, &end);
    }
    const uint64_t loaded = end;
    for (unsigned i = 0; i < sections(&im) && !status; i++) {
        Elf64_Shdr s;
        if (!(status = read(user, h->e_shoff + i * sizeof s, &s, sizeof s)) && s.sh_type != SHT_NULL && s.sh_type != SHT_NOBITS) {
            status = name_bytes(&im, "a section", s.sh_offset, s.sh_size, &end);
            sum += s.sh_size;
            if (!status && end > loaded && end - loaded > LARGEST_NOT_LOADED)
                status = fail(&im, "section %u ends %llu bytes after what is loaded, more than %d: strip the file", i,
                    (unsigned long long)(end - loaded), LARGEST_NOT_LOADED);
        }
    }
    if (status || (status = name_bytes(&im, "its headers", h->e_phoff, h->e_phnum * sizeof(Elf64_Phdr), &end)) ||
        (sections(&im) && (status = name_bytes(&im, "its headers", h->e_shoff, h->e_shnum * sizeof(Elf64_Shdr), &end))))
        return status;
    if (end > sum && end - sum > LARGEST_HOLE)
        return fail(&im, "corrupt: %llu of its bytes belong to no section", (unsigned long long)(end - sum));
    *out = end > sizeof start ? end : sizeof start;
    return DV_OK;
}

int dv__elf_check(const unsigned char *data, size_t size, const char *where)
{
    image im = { .data = data, .size = size, .where = where };
    int status;
    if ((status = check_start(&im)) || (status = check_tables(&im)) || (status = check_segments(&im)) ||
        (status = check_placement(&im)) || (status = check_sections(&im)) || (status = check_dynamic(&im)) ||
        (status = check_symbols(&im)) || (status = check_exports(&im)) || (status = check_needed(&im)) ||
        (status = check_relocations(&im)))
        return status;
    return (status = check_versions(&im)) ? status : check_functions(&im);
}

size_t dv__elf_spans(const unsigned char *data, const char *base, dv__span *spans, size_t room)
{
    image im = { .data = data };
    size_t n = 0;
    memcpy(&im.head, data, sizeof im.head);
    for (unsigned i = 0; i < im.head.e_phnum && n < room; i++) {
        const Elf64_Phdr p = segment(&im, i);
        if (p.p_type == PT_LOAD && p.p_flags & PF_R)
            spans[n++] = (dv__span){ (const char *)((uintptr_t)base + p.p_vaddr), p.p_memsz };
    }
    return n;
}

void dv__elf_needed(const unsigned char *data, size_t size, dv__elf_needed_fn fn, void *user)
{
    image im = { .data = data, .size = size };
    uint64_t search = 0, address = 0;
    memcpy(&im.head, data, sizeof im.head);
    check_segments(&im); /* finds the dynamic section */
    if (!dynamic(&im, DT_STRTAB, &address) || !in_file(&im, address, 1, &im.strings_at))
        return;
    const char *strings = (const char *)data + im.strings_at;
    const bool has_search = dynamic(&im, DT_RUNPATH, &search) || dynamic(&im, DT_RPATH, &search);
    for (uint64_t at = im.dynamic_at;; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, data + at, sizeof d);
        if (d.d_tag == DT_NULL)
            return;
        if (d.d_tag == DT_NEEDED)
            fn(user, strings + d.d_un.d_val, has_search ? strings + search : "");
    }
}
