/* Checks an untrusted ELF file. Data is read by elf_try_read_bytes(), which checks the extent first, or after such a check. A
 * count from the file sizes no loop before it was checked against the file's own size. */
#include "registry/elf_check.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

#if defined(__x86_64__)
enum { ELF_MACHINE = EM_X86_64, MAX_PAGE_SIZE = 4096, RELATIVE_RELOCATION = R_X86_64_RELATIVE };
#elif defined(__aarch64__)
enum { ELF_MACHINE = EM_AARCH64, MAX_PAGE_SIZE = 65536, RELATIVE_RELOCATION = R_AARCH64_RELATIVE };
#elif defined(__riscv)
enum { ELF_MACHINE = EM_RISCV, MAX_PAGE_SIZE = 4096, RELATIVE_RELOCATION = R_RISCV_RELATIVE };
#elif defined(__powerpc64__)
enum { ELF_MACHINE = EM_PPC64, MAX_PAGE_SIZE = 65536, RELATIVE_RELOCATION = R_PPC64_RELATIVE };
#else
enum { ELF_MACHINE = EM_NONE, MAX_PAGE_SIZE = 65536, RELATIVE_RELOCATION = 0 };
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { NATIVE_BYTE_ORDER = ELFDATA2LSB };
#else
enum { NATIVE_BYTE_ORDER = ELFDATA2MSB };
#endif

enum {
    MAX_UNNAMED_BYTES = 1
        << 26, /* largest number of bytes before the end of the named parts that belong to no section, as for alignment */
    MAX_UNLOADED_BYTES = 1 << 28 /* largest number of bytes of sections after the last segment, which debuggers read */
};

typedef struct elf_image {
    const unsigned char *data;
    uint64_t size;
    const char *where;
    Elf64_Ehdr head;
    uint64_t dynamic_at, dynamic_size; /* in the file */
    uint64_t symbols_at, nsymbols;     /* in the file */
    uint64_t strings_at, strings_size;
} elf_image;

static bool elf_is_inside(uint64_t at, uint64_t n, uint64_t size) { return at <= size && n <= size - at; }

/* Copies n bytes at an offset of the file to *out. Returns false if they do not all lie in the file. */
static bool elf_try_read_bytes(const elf_image *im, uint64_t offset, void *out, size_t n)
{
    if (!elf_is_inside(offset, n, im->size))
        return false;
    memcpy(out, im->data + offset, n);
    return true;
}

static int elf_fail(const elf_image *im, const char *format, ...) DV__PRINTF(2, 3);
static int elf_fail(const elf_image *im, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return dv_fail(DV_EBINARY, "%s: not a usable operator binary: %s", im->where, what);
}

static int elf_fail_truncated(const elf_image *im, const char *name_for_message, uint64_t offset, uint64_t nbytes)
{
    return elf_fail(im, "truncated or corrupt: %s (%llu bytes at %llu) is not inside the file's %llu bytes", name_for_message,
        (unsigned long long)nbytes, (unsigned long long)offset, (unsigned long long)im->size);
}

static const char *elf_get_machine_name(unsigned machine)
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

/* Checks that the ELF header is that of a shared object for this processor, and copies it to im->head. All later checks rely
 * on it. Returns a status. */
static int elf_check_header(elf_image *im)
{
    const Elf64_Ehdr *h = &im->head;
    if (im->size < EI_NIDENT || memcmp(im->data, ELFMAG, SELFMAG))
        return elf_fail(
            im, im->size < EI_NIDENT ? "truncated: %llu bytes" : "not an ELF file (%llu bytes)", (unsigned long long)im->size);
    if (im->data[EI_CLASS] != ELFCLASS64)
        return elf_fail(im, "a %s-bit ELF file, expected 64-bit", im->data[EI_CLASS] == ELFCLASS32 ? "32" : "strange");
    if (im->data[EI_DATA] != NATIVE_BYTE_ORDER)
        return elf_fail(im, "of the other byte order");
    if (!elf_try_read_bytes(im, 0, &im->head, sizeof im->head))
        return elf_fail_truncated(im, "the ELF header", 0, sizeof im->head);
    if (h->e_ident[EI_VERSION] != EV_CURRENT || h->e_version != EV_CURRENT)
        return elf_fail(im, "ELF version %u, expected 1", h->e_version);
    if (h->e_machine != ELF_MACHINE)
        return elf_fail(im, "made for %s (machine %u), this is %s", elf_get_machine_name(h->e_machine), h->e_machine,
            elf_get_machine_name(ELF_MACHINE));
    if (h->e_type != ET_DYN)
        return elf_fail(im, "not a shared object (ELF type %u%s)", h->e_type,
            h->e_type == ET_EXEC      ? ", a program"
                : h->e_type == ET_REL ? ", an object file"
                                      : "");
    if (h->e_ehsize != sizeof(Elf64_Ehdr) || h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phnum == 0 || h->e_phnum == PN_XNUM)
        return elf_fail(im, "corrupt ELF header");
    return DV_OK;
}

/* Fails unless the tables of program headers and section headers lie inside the file. */
static int elf_check_header_tables(const elf_image *im)
{
    const Elf64_Ehdr *h = &im->head;
    if (!elf_is_inside(h->e_phoff, (uint64_t)h->e_phnum * sizeof(Elf64_Phdr), im->size))
        return elf_fail_truncated(im, "the program header table", h->e_phoff, (uint64_t)h->e_phnum * sizeof(Elf64_Phdr));
    if (h->e_shoff && h->e_shnum) {
        if (h->e_shentsize != sizeof(Elf64_Shdr))
            return elf_fail(im, "corrupt ELF header");
        if (!elf_is_inside(h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr), im->size))
            return elf_fail_truncated(im, "the section header table", h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr));
    }
    return DV_OK;
}

static Elf64_Phdr elf_get_segment(const elf_image *im, unsigned i)
{
    Elf64_Phdr p;
    memcpy(&p, im->data + im->head.e_phoff + i * sizeof p, sizeof p);
    return p;
}

/* Checks the program headers: each segment lies inside the file, those that are loaded follow each other, and one has the
 * dynamic section. Sets im->dynamic_at and im->dynamic_size. Returns a status. */
static int elf_check_segments(elf_image *im)
{
    uint64_t end = 0;
    unsigned loads = 0, dynamics = 0;
    for (unsigned i = 0; i < im->head.e_phnum; i++) {
        const Elf64_Phdr p = elf_get_segment(im, i);
        char what[40];
        snprintf(what, sizeof what, "segment %u (type %#x)", i, (unsigned)p.p_type);
        if (p.p_type != PT_NULL && p.p_type != PT_GNU_STACK && !elf_is_inside(p.p_offset, p.p_filesz, im->size))
            return elf_fail_truncated(im, what, p.p_offset, p.p_filesz);
        if (p.p_type == PT_LOAD) {
            const bool power = p.p_align && !(p.p_align & (p.p_align - 1));
            if (p.p_filesz > p.p_memsz || !elf_is_inside(p.p_vaddr, p.p_memsz, UINT64_MAX / 2) ||
                (p.p_align > 1 && (!power || (p.p_vaddr - p.p_offset) % p.p_align)) || p.p_vaddr < end)
                return elf_fail(im, "corrupt: %s", what);
            end = p.p_vaddr + p.p_memsz;
            loads++;
        } else if (p.p_type == PT_DYNAMIC) {
            dynamics++;
            im->dynamic_at = p.p_offset;
            im->dynamic_size = p.p_filesz;
        }
    }
    if (!loads || dynamics != 1)
        return elf_fail(im, "corrupt: %u segments to load and %u dynamic sections", loads, dynamics);
    return DV_OK;
}

/* Finds the file offset of the bytes at an address of the image. Returns false unless all nbytes bytes come from the file
 * and lie in one readable segment. */
static bool elf_try_find_file_offset(const elf_image *im, uint64_t address, uint64_t nbytes, uint64_t *file_offset)
{
    for (unsigned i = 0; i < im->head.e_phnum; i++) {
        const Elf64_Phdr p = elf_get_segment(im, i);
        if (p.p_type == PT_LOAD && p.p_flags & PF_R && address >= p.p_vaddr &&
            elf_is_inside(address - p.p_vaddr, nbytes, p.p_filesz)) {
            *file_offset = p.p_offset + (address - p.p_vaddr);
            return true;
        }
    }
    return false;
}

/* True if one segment with at least these permissions (PF_*) holds all bytes at this address. */
static bool elf_is_in_segment(const elf_image *im, uint64_t address, uint64_t nbytes, unsigned permissions)
{
    for (unsigned i = 0; i < im->head.e_phnum; i++) {
        const Elf64_Phdr p = elf_get_segment(im, i);
        if (p.p_type == PT_LOAD && (p.p_flags & permissions) == permissions && address >= p.p_vaddr &&
            elf_is_inside(address - p.p_vaddr, nbytes, p.p_memsz))
            return true;
    }
    return false;
}

/* True if n bytes at an address of the image come from this offset of the file, or n is 0. */
static bool elf_is_at_file_offset(const elf_image *im, uint64_t address, uint64_t offset, uint64_t nbytes)
{
    uint64_t at;
    return !nbytes || (elf_try_find_file_offset(im, address, nbytes, &at) && at == offset);
}

/* Checks that segments which are not loaded themselves lie in one that is. Returns a status. */
static int elf_check_segment_placement(const elf_image *im)
{
    for (unsigned i = 0; i < im->head.e_phnum; i++) {
        const Elf64_Phdr p = elf_get_segment(im, i);
        if (p.p_type == PT_LOAD || p.p_type == PT_NULL || p.p_type == PT_GNU_STACK)
            continue;
        const bool power = !(p.p_align & (p.p_align - 1));
        bool good = power && p.p_filesz <= p.p_memsz &&
            (p.p_type == PT_GNU_RELRO || elf_is_at_file_offset(im, p.p_vaddr, p.p_offset, p.p_filesz));
        if (p.p_type == PT_DYNAMIC) /* the loader writes to the dynamic section */
            good = good && elf_is_in_segment(im, p.p_vaddr, p.p_memsz, PF_W);
        if (p.p_type ==
            PT_GNU_RELRO) /* the loader makes this segment read-only after relocation; lld rounds its end up to a page */
            good = good &&
                (elf_is_in_segment(im, p.p_vaddr, p.p_memsz, PF_W) ||
                    elf_is_in_segment(im, p.p_vaddr, p.p_memsz > MAX_PAGE_SIZE ? p.p_memsz - MAX_PAGE_SIZE + 1 : 1, PF_W));
        if (!good)
            return elf_fail(im, "corrupt: segment %u (type %#x)", i, (unsigned)p.p_type);
    }
    return DV_OK;
}

static Elf64_Shdr elf_get_section(const elf_image *im, unsigned i)
{
    Elf64_Shdr s;
    memcpy(&s, im->data + im->head.e_shoff + i * sizeof s, sizeof s);
    return s;
}

static unsigned elf_nsections(const elf_image *im) { return im->head.e_shoff ? im->head.e_shnum : 0; }

/* Checks that each section lies inside the file, and where its segment is. Returns a status. */
static int elf_check_sections(const elf_image *im)
{
    for (unsigned i = 0; i < elf_nsections(im); i++) {
        const Elf64_Shdr s = elf_get_section(im, i);
        char what[40];
        snprintf(what, sizeof what, "section %u", i);
        if (s.sh_type != SHT_NULL && s.sh_type != SHT_NOBITS && !elf_is_inside(s.sh_offset, s.sh_size, im->size))
            return elf_fail_truncated(im, what, s.sh_offset, s.sh_size);
        if (s.sh_flags & SHF_ALLOC && s.sh_type != SHT_NULL && s.sh_type != SHT_NOBITS &&
            !elf_is_at_file_offset(im, s.sh_addr, s.sh_offset, s.sh_size))
            return elf_fail(im, "corrupt: %s is not where its segment is", what);
    }
    return DV_OK;
}

/* ---- The dynamic section ------------------------------------------------------------------------------------------------- */

/* Finds the value of a tag's last entry in the dynamic section, which the loader uses. Returns false if the tag is missing.
 * elf_check_dynamic() must have found DT_NULL. */
static bool elf_try_find_dynamic_value(const elf_image *im, int64_t tag, uint64_t *value)
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

static int elf_check_dynamic(const elf_image *im)
{
    uint64_t mapped;
    bool ended = false, found = false;
    if (im->dynamic_at % 8 || im->dynamic_size % sizeof(Elf64_Dyn))
        return elf_fail(im, "corrupt: the dynamic section");
    for (unsigned i = 0; i < im->head.e_phnum && !found;
        i++) { /* the loader reads the dynamic section at its address in memory, so the address must lead to the same bytes */
        const Elf64_Phdr p = elf_get_segment(im, i);
        found = p.p_type == PT_DYNAMIC && elf_try_find_file_offset(im, p.p_vaddr, p.p_filesz, &mapped) &&
            mapped == im->dynamic_at;
    }
    for (uint64_t i = 0; i < im->dynamic_size && !ended; i += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        ended = elf_try_read_bytes(im, im->dynamic_at + i, &d, sizeof d) && d.d_tag == DT_NULL;
    }
    return found && ended ? DV_OK : elf_fail(im, "corrupt: the dynamic section");
}

/* Fails unless the table that has its address and its size in two dynamic entries lies inside the file, with entries of
 * entry_size bytes. *offset: the table's offset in the file; *size: its bytes, 0 if there is no such table. */
static int elf_check_and_find_table(const elf_image *im, const char *name_for_message, int64_t address_tag, int64_t size_tag,
    uint64_t entry_size, uint64_t *offset, uint64_t *size)
{
    uint64_t address = 0, bytes = 0;
    *offset = *size = 0;
    if (!elf_try_find_dynamic_value(im, address_tag, &address))
        return DV_OK;
    if (!elf_try_find_dynamic_value(im, size_tag, &bytes) || bytes % entry_size ||
        !elf_try_find_file_offset(im, address, bytes, offset))
        return elf_fail(im, "corrupt: %s (%llu bytes at address %#llx)", name_for_message, (unsigned long long)bytes,
            (unsigned long long)address);
    *size = bytes;
    return DV_OK;
}

/* Sets im->nsymbols, the number of symbols, from the hash tables. Fails if these are corrupt or missing. */
static int elf_count_symbols(elf_image *im)
{
    uint64_t address = 0, at = 0;
    uint32_t head[4], bucket, word;
    im->nsymbols = 0;
    if (elf_try_find_dynamic_value(im, DT_HASH, &address)) {
        if (!elf_try_find_file_offset(im, address, 8, &at) || !elf_try_read_bytes(im, at, head, 8) ||
            !elf_try_find_file_offset(im, address, 8 + ((uint64_t)head[0] + head[1]) * 4, &at))
            return elf_fail(im, "corrupt: the hash table of its symbols");
        im->nsymbols = head[1];
    }
    if (!elf_try_find_dynamic_value(im, DT_GNU_HASH, &address))
        return im->nsymbols ? DV_OK : elf_fail(im, "corrupt: no hash table of its symbols");
    if (!elf_try_find_file_offset(im, address, 16, &at) || !elf_try_read_bytes(im, at, head, 16))
        return elf_fail(im, "corrupt: the hash table of its symbols");
    const uint64_t buckets = 16 + (uint64_t)head[2] * 8, chains = buckets + (uint64_t)head[0] * 4;
    if (!head[0] || !head[2] || (head[2] & (head[2] - 1)) || head[3] > 63 || !elf_try_find_file_offset(im, address, chains, &at))
        return elf_fail(im, "corrupt: the hash table of its symbols");
    uint64_t last = head[1], words = 0;
    for (uint64_t i = 0; i < head[0]; i++) {
        memcpy(&bucket, im->data + at + buckets + i * 4, 4);
        if (bucket && bucket < head[1])
            return elf_fail(im, "corrupt: the hash table of its symbols");
        for (uint64_t s = bucket; s; s++) { /* a chain ends at an odd hash; no two chains share a word */
            uint64_t here;
            if (words++ > im->size / 4 || !elf_try_find_file_offset(im, address + chains + (s - head[1]) * 4, 4, &here) ||
                !elf_try_read_bytes(im, here, &word, 4))
                return elf_fail(im, "corrupt: the hash table of its symbols");
            last = s >= last ? s + 1 : last;
            if (word & 1)
                break;
        }
    }
    im->nsymbols = last > im->nsymbols ? last : im->nsymbols;
    return DV_OK;
}

static Elf64_Sym elf_get_symbol(const elf_image *im, uint64_t i)
{
    Elf64_Sym s;
    memcpy(&s, im->data + im->symbols_at + i * sizeof s, sizeof s);
    return s;
}

/* Checks the table of symbols and their names, and sets its position, size and strings in im. Returns a status. */
static int elf_check_symbols(elf_image *im)
{
    uint64_t address = 0, entry = sizeof(Elf64_Sym);
    int status = elf_check_and_find_table(im, "its strings", DT_STRTAB, DT_STRSZ, 1, &im->strings_at, &im->strings_size);
    if (status)
        return status;
    if (!im->strings_size || im->data[im->strings_at + im->strings_size - 1])
        return elf_fail(im, "corrupt: its strings do not end");
    if ((status = elf_count_symbols(im)))
        return status;
    elf_try_find_dynamic_value(im, DT_SYMENT, &entry);
    if (!elf_try_find_dynamic_value(im, DT_SYMTAB, &address) || entry != sizeof(Elf64_Sym) || im->nsymbols > im->size / entry ||
        !elf_try_find_file_offset(im, address, im->nsymbols * entry, &im->symbols_at))
        return elf_fail(im, "corrupt: the table of its %llu symbols", (unsigned long long)im->nsymbols);
    for (uint64_t i = 0; i < im->nsymbols; i++)
        if (elf_get_symbol(im, i).st_name >= im->strings_size)
            return elf_fail(im, "corrupt: the name of symbol %llu", (unsigned long long)i);
    return DV_OK;
}

/* Fails unless each name in the dynamic section (needed libraries, the library itself, search paths) lies inside the table
 * of strings. */
static int elf_check_dynamic_names(const elf_image *im)
{
    for (uint64_t at = im->dynamic_at;; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, im->data + at, sizeof d);
        if (d.d_tag == DT_NULL)
            return DV_OK;
        if ((d.d_tag == DT_NEEDED || d.d_tag == DT_SONAME || d.d_tag == DT_RPATH || d.d_tag == DT_RUNPATH) &&
            d.d_un.d_val >= im->strings_size)
            return elf_fail(im, "corrupt: a name in the dynamic section");
    }
}

/* Checks the dynamic entries that describe relocations. The loader asserts these conditions and ends the process if one
 * fails. */
static int elf_check_relocation_entry_sizes(const elf_image *im)
{
    static const struct {
        int64_t table, entry;
        uint64_t size;
    } forms[] = { { DT_RELA, DT_RELAENT, sizeof(Elf64_Rela) }, { DT_REL, DT_RELENT, sizeof(Elf64_Rel) },
        { 36 /* DT_RELR */, 37 /* DT_RELRENT */, 8 } };
    uint64_t value = DT_RELA, entry = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (elf_try_find_dynamic_value(im, forms[i].table, &value) &&
            (!elf_try_find_dynamic_value(im, forms[i].entry, &entry) || entry != forms[i].size))
            return elf_fail(im, "corrupt: the size of its relocations");
    const bool calls = elf_try_find_dynamic_value(im, DT_JMPREL, &entry),
               kind = elf_try_find_dynamic_value(im, DT_PLTREL, &value);
    if (calls != kind || (kind && value != DT_RELA))
        return elf_fail(im, "corrupt: the kind of its relocations for calls (DT_PLTREL)");
    return DV_OK;
}

/* Checks DT_RELACOUNT, the number of relative relocations at the front of the table, which the loader does not verify. */
static int elf_check_relative_count(const elf_image *im)
{
    uint64_t count = 0, at, size;
    if (!elf_try_find_dynamic_value(im, DT_RELACOUNT, &count))
        return DV_OK;
    const int status = elf_check_and_find_table(im, "its relocations", DT_RELA, DT_RELASZ, sizeof(Elf64_Rela), &at, &size);
    bool good = !status && count <= size / sizeof(Elf64_Rela);
    for (uint64_t i = 0; good && i < count; i++) {
        Elf64_Rela r;
        memcpy(&r, im->data + at + i * sizeof r, sizeof r);
        good = ELF64_R_TYPE(r.r_info) == RELATIVE_RELOCATION;
    }
    return good ? DV_OK : elf_fail(im, "corrupt: the count of its relative relocations (DT_RELACOUNT)");
}

static int elf_check_relocations(const elf_image *im)
{
    static const struct { int64_t tag, size_tag; } tables[] = { { DT_RELA, DT_RELASZ }, { DT_JMPREL, DT_PLTRELSZ } };
    uint64_t at, size;
    int status = elf_check_relocation_entry_sizes(im);
    if (status || (status = elf_check_relative_count(im)))
        return status;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        if ((status = elf_check_and_find_table(
                 im, "its relocations", tables[t].tag, tables[t].size_tag, sizeof(Elf64_Rela), &at, &size)))
            return status;
        for (uint64_t i = 0; i < size; i += sizeof(Elf64_Rela)) {
            Elf64_Rela r;
            memcpy(&r, im->data + at + i, sizeof r);
            if (ELF64_R_SYM(r.r_info) >= im->nsymbols || (r.r_info && !elf_is_in_segment(im, r.r_offset, 8, PF_W)))
                return elf_fail(im,
                    "corrupt: relocation %llu is not in memory that can be written (was it compiled without -fPIC?)",
                    (unsigned long long)(i / sizeof r));
        }
    }
    if ((status = elf_check_and_find_table(im, "its relocations", DT_REL, DT_RELSZ, sizeof(Elf64_Rel), &at, &size)))
        return status;
    return elf_check_and_find_table(im, "its relocations", 36 /* DT_RELR */, 35 /* DT_RELRSZ */, 8, &at, &size);
}

/* Fails unless the dynamic section and the section table agree about the arrays of functions and the tables of versions. A
 * binary without sections has nothing to compare. */
static int elf_check_sections_match_dynamic(const elf_image *im)
{
    static const struct {
        int64_t tag, size_tag; /* size_tag 0: the table has no size tag */
        unsigned type;
    } section_pairs[] = { { DT_INIT_ARRAY, DT_INIT_ARRAYSZ, SHT_INIT_ARRAY }, { DT_FINI_ARRAY, DT_FINI_ARRAYSZ, SHT_FINI_ARRAY },
        { DT_VERNEED, 0, SHT_GNU_verneed }, { DT_VERDEF, 0, SHT_GNU_verdef }, { DT_VERSYM, 0, SHT_GNU_versym } };
    for (size_t t = 0; t < sizeof section_pairs / sizeof *section_pairs && elf_nsections(im); t++) {
        uint64_t address = 0, size = 0;
        const bool there = elf_try_find_dynamic_value(im, section_pairs[t].tag, &address);
        const bool sized = section_pairs[t].size_tag && elf_try_find_dynamic_value(im, section_pairs[t].size_tag, &size);
        bool any = false, same = false;
        for (unsigned i = 0; i < elf_nsections(im); i++) {
            const Elf64_Shdr s = elf_get_section(im, i);
            const bool of = s.sh_type == section_pairs[t].type && s.sh_flags & SHF_ALLOC;
            any |= of;
            same |= of && s.sh_addr == address && (!sized || s.sh_size == size);
        }
        if (there ? !same : any || sized)
            return elf_fail(
                im, "corrupt: the dynamic section and the sections differ (tag %#llx)", (unsigned long long)section_pairs[t].tag);
    }
    return DV_OK;
}

/* True if a function begins at this address: that of a symbol, or the start of a section of code. A stripped binary does not
 * name its local functions, so any address of code is accepted. */
static bool elf_is_function_address(const elf_image *im, uint64_t address)
{
    bool stripped = true;
    if (!elf_is_in_segment(im, address, 1, PF_X))
        return false;
    for (uint64_t i = 0; i < im->nsymbols; i++)
        if (elf_get_symbol(im, i).st_value == address && elf_get_symbol(im, i).st_shndx != SHN_UNDEF)
            return true;
    for (unsigned i = 0; i < elf_nsections(im); i++) {
        const Elf64_Shdr s = elf_get_section(im, i);
        if (s.sh_flags & SHF_EXECINSTR && address - s.sh_addr < s.sh_size && (s.sh_entsize || s.sh_addr == address))
            return !s.sh_entsize; /* a section with entries is a PLT, whose addresses are no functions of an array */
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

/* An array of functions, such as DT_INIT_ARRAY. Relocations write its addresses; each must be the address of code of this
 * binary, or of a symbol. */
enum { MAX_FUNCTIONS = 1 << 16 };
typedef struct elf_function_array {
    uint64_t address, n; /* address of the array, and its number of entries of 8 bytes */
    unsigned char bits[MAX_FUNCTIONS / 8];
} elf_function_array;

/* Marks the array's entry that a relocation writes; does nothing for an address outside the array. Returns false if the
 * address is no entry, or the function is not in code and not a symbol's. */
static bool elf_try_mark_array_entry(
    const elf_image *im, elf_function_array *f, uint64_t relocated_address, uint64_t function, bool is_symbol)
{
    if (relocated_address + 7 < f->address || relocated_address >= f->address + 8 * f->n)
        return true; /* the relocation is not in the array */
    if ((relocated_address - f->address) % 8 || !(is_symbol || elf_is_in_segment(im, function, 1, PF_X)))
        return false;
    const uint64_t i = (relocated_address - f->address) / 8;
    f->bits[i / 8] |= (unsigned char)(1u << i % 8);
    return true;
}

/* Marks the array's entries that DT_RELR relocates. There an even word is the address of a relocation, and an odd one has a
 * bit for each of the next 63 words. The address that a relocation adds to is in the image itself. Returns false if an entry
 * is no function. */
static bool elf_try_mark_relr_entries(const elf_image *im, elf_function_array *f)
{
    uint64_t at, size, word, here, value, next = 0;
    if (elf_check_and_find_table(im, "its relocations", 36 /* DT_RELR */, 35 /* DT_RELRSZ */, 8, &at, &size))
        return false;
    for (uint64_t i = 0; i < size; i += 8) {
        memcpy(&word, im->data + at + i, sizeof word);
        uint64_t first = word & 1 ? next : word, bits = word & 1 ? word >> 1 : 1;
        next = word & 1 ? next + 63 * 8 : word + 8;
        for (; bits; bits >>= 1, first += 8)
            if (bits & 1 && first + 7 >= f->address && first < f->address + 8 * f->n &&
                (!elf_try_find_file_offset(im, first, 8, &here) || !elf_try_read_bytes(im, here, &value, 8) ||
                    !elf_try_mark_array_entry(im, f, first, value, false)))
                return false;
    }
    return true;
}

/* Checks that each entry of an array, which two dynamic entries give, is relocated to a function: the loader calls them. noun:
 * the array, for the message. Returns a status. */
static int elf_check_function_array(const elf_image *im, const char *noun, int64_t tag, int64_t size_tag)
{
    elf_function_array f = { .n = 0 };
    uint64_t at, size, word;
    int status = elf_check_and_find_table(im, noun, tag, size_tag, 8, &at, &size);
    if (status || !size)
        return status;
    elf_try_find_dynamic_value(im, tag, &f.address);
    f.n = size / 8;
    bool good = f.n <= MAX_FUNCTIONS && f.address % 8 == 0 && elf_is_in_segment(im, f.address, size, PF_W) &&
        elf_try_mark_relr_entries(im, &f);
    good = good && !elf_check_and_find_table(im, "its relocations", DT_RELA, DT_RELASZ, sizeof(Elf64_Rela), &at, &size);
    for (uint64_t i = 0; good && i < size; i += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        memcpy(&r, im->data + at + i, sizeof r);
        good = !r.r_info || elf_try_mark_array_entry(im, &f, r.r_offset, (uint64_t)r.r_addend, ELF64_R_SYM(r.r_info));
    }
    for (uint64_t i = 0; good && i < f.n; i++) {
        word = f.bits[i / 8] >> i % 8 & 1;
        good = word;
    }
    return good ? DV_OK : elf_fail(im, "corrupt: %s are not functions", noun); /* the loader calls each entry without a check */
}

static int elf_check_initialiser_functions(const elf_image *im)
{
    static const struct { int64_t tag, flags; } addresses[] = { { DT_VERNEED, PF_R }, { DT_VERDEF, PF_R }, { DT_PLTGOT, PF_W } };
    uint64_t address = 0;
    int status = elf_check_sections_match_dynamic(im);
    if (status || (status = elf_check_function_array(im, "its initialisers", DT_INIT_ARRAY, DT_INIT_ARRAYSZ)) ||
        (status = elf_check_function_array(im, "its finalisers", DT_FINI_ARRAY, DT_FINI_ARRAYSZ)))
        return status;
    if ((elf_try_find_dynamic_value(im, DT_INIT, &address) && !elf_is_function_address(im, address)) ||
        (elf_try_find_dynamic_value(im, DT_FINI, &address) && !elf_is_function_address(im, address)))
        return elf_fail(im, "corrupt: its initialiser or finaliser is not a function");
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (elf_try_find_dynamic_value(im, addresses[i].tag, &address) &&
            !elf_is_in_segment(im, address, 4, (unsigned)addresses[i].flags))
            return elf_fail(im, "corrupt: the dynamic section points outside the image");
    return DV_OK;
}

/* ---- Versions of symbols ------------------------------------------------------------------------------------------------- */

/* True if the string at this offset of the table of strings is the name of a needed library. The loader asserts that for
 * each library with versions. */
static bool elf_is_needed_library(const elf_image *im, uint64_t name_offset)
{
    const char *strings = (const char *)im->data + im->strings_at;
    for (uint64_t at = im->dynamic_at;; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, im->data + at, sizeof d);
        if (d.d_tag == DT_NULL)
            return false;
        if (d.d_tag == DT_NEEDED && !strcmp(strings + d.d_un.d_val, strings + name_offset))
            return true;
    }
}

/* Walks the chains of DT_VERNEED, the versions that the binary needs, as the loader does. *max_version: raised to the
 * largest version number. Returns false if the chains are corrupt. */
static bool elf_try_walk_needed_versions(const elf_image *im, uint64_t address, uint64_t *max_version)
{
    Elf64_Verneed need = { .vn_next = 0 };
    uint64_t steps = 0, at;
    do {
        address += need.vn_next;
        if (steps++ > im->size / sizeof need || !elf_try_find_file_offset(im, address, sizeof need, &at) ||
            !elf_try_read_bytes(im, at, &need, sizeof need) || need.vn_version != 1 || need.vn_file >= im->strings_size ||
            !elf_is_needed_library(im, need.vn_file))
            return false;
        Elf64_Vernaux one = { .vna_next = need.vn_aux };
        uint64_t where = address;
        do {
            where += one.vna_next;
            if (steps++ > im->size / sizeof one || !elf_try_find_file_offset(im, where, sizeof one, &at) ||
                !elf_try_read_bytes(im, at, &one, sizeof one) || one.vna_name >= im->strings_size)
                return false;
            *max_version = (one.vna_other & 0x7fffu) > *max_version ? one.vna_other & 0x7fffu : *max_version;
        } while (one.vna_next);
    } while (need.vn_next);
    return true;
}

/* Walks the chain of DT_VERDEF, the versions that the binary defines, as the loader does. *max_version: raised to the
 * largest version number. Returns false if the chain is corrupt. */
static bool elf_try_walk_defined_versions(const elf_image *im, uint64_t address, uint64_t *max_version)
{
    Elf64_Verdef own = { .vd_next = 0 };
    Elf64_Verdaux name;
    uint64_t steps = 0, at;
    do {
        address += own.vd_next;
        if (steps++ > im->size / sizeof own || !elf_try_find_file_offset(im, address, sizeof own, &at) ||
            !elf_try_read_bytes(im, at, &own, sizeof own) || own.vd_version != 1 ||
            !elf_try_find_file_offset(im, address + own.vd_aux, sizeof name, &at) ||
            !elf_try_read_bytes(im, at, &name, sizeof name) || name.vda_name >= im->strings_size)
            return false;
        *max_version = (own.vd_ndx & 0x7fffu) > *max_version ? own.vd_ndx & 0x7fffu : *max_version;
    } while (own.vd_next);
    return true;
}

/* Fails if the binary has versions and some symbol has no version number, or a number larger than all versions. The loader
 * tests neither. */
static int elf_check_versions(const elf_image *im)
{
    uint64_t needed = 0, own = 0, numbers = 0, max_version = 0, at = 0;
    const bool has_needed = elf_try_find_dynamic_value(im, DT_VERNEED, &needed),
               has_own = elf_try_find_dynamic_value(im, DT_VERDEF, &own);
    bool good = elf_try_find_dynamic_value(im, DT_VERSYM, &numbers) == (has_needed || has_own);
    good = good && (!has_needed || elf_try_walk_needed_versions(im, needed, &max_version)) &&
        (!has_own || elf_try_walk_defined_versions(im, own, &max_version));
    good = good && (!numbers || elf_try_find_file_offset(im, numbers, im->nsymbols * 2, &at));
    for (uint64_t i = 0; good && numbers && i < im->nsymbols; i++) {
        uint16_t number;
        memcpy(&number, im->data + at + i * 2, sizeof number);
        good = (number & 0x7fffu) <= (max_version > 1 ? max_version : 1);
    }
    return good ? DV_OK : elf_fail(im, "corrupt: the versions of its symbols");
}

/* ---- What it exports ----------------------------------------------------------------------------------------------------- */

/* Fails unless the binary exports dovetail_library_1, an object inside a readable segment. DV_EABI: it exports another major
 * version only. */
static int elf_check_exports(const elf_image *im)
{
    static const char prefix[] = "dovetail_library_";
    char others[200] = "";
    for (uint64_t i = 0; i < im->nsymbols; i++) {
        const Elf64_Sym s = elf_get_symbol(im, i);
        const char *name = (const char *)im->data + im->strings_at + s.st_name;
        const unsigned bind = ELF64_ST_BIND(s.st_info);
        if (s.st_shndx == SHN_UNDEF || (bind != STB_GLOBAL && bind != STB_WEAK) || strncmp(name, prefix, sizeof prefix - 1))
            continue;
        name += sizeof prefix - 1;
        if (!strcmp(name, "1")) {
            if (ELF64_ST_TYPE(s.st_info) != STT_OBJECT || s.st_value % 8 || !elf_is_in_segment(im, s.st_value, 8, PF_R))
                return elf_fail(im, "dovetail_library_1 is not a descriptor");
            return DV_OK;
        }
        const size_t used = strlen(others);
        if (*name && strspn(name, "0123456789") == strlen(name))
            snprintf(others + used, sizeof others - used, "%s%.8s", used ? ", " : "", name);
    }
    if (*others)
        return dv_fail(DV_EABI, "%s: made for operator ABI %s, this runtime has ABI %d (it exports dovetail_library_%s)",
            im->where, others, DV_ABI_MAJOR, others);
    return elf_fail(im, "it exports no dovetail_library_%d (is DV_LIBRARY missing?)", DV_ABI_MAJOR);
}

/* Raises *end, the end of the parts that the headers name, to the end of nbytes bytes at `offset`. Fails if these lie
 * outside the file. */
static int elf_raise_end_or_fail(
    const elf_image *im, const char *name_for_message, uint64_t offset, uint64_t nbytes, uint64_t *end)
{
    if (!elf_is_inside(offset, nbytes, im->size))
        return elf_fail_truncated(im, name_for_message, offset, nbytes);
    *end = offset + nbytes > *end ? offset + nbytes : *end;
    return DV_OK;
}

int dv__elf_find_extent(dv__elf_read read, void *user, size_t size, const char *where, size_t *end_offset)
{
    unsigned char start[sizeof(Elf64_Ehdr)] = { 0 };
    elf_image im = { .data = start, .size = size, .where = where };
    const Elf64_Ehdr *h = &im.head;
    uint64_t end = 0, sum = 0;
    int status = read(user, 0, start, size < sizeof start ? size : sizeof start);
    if (status || (status = elf_check_header(&im)) || (status = elf_check_header_tables(&im)))
        return status;
    for (unsigned i = 0; i < h->e_phnum && !status; i++) {
        Elf64_Phdr p;
        if (!(status = read(user, h->e_phoff + i * sizeof p, &p, sizeof p)) && p.p_type != PT_NULL && p.p_type != PT_GNU_STACK)
            status = elf_raise_end_or_fail(&im, "a segment", p.p_offset, p.p_filesz, &end);
    }
    const uint64_t loaded = end;
    for (unsigned i = 0; i < elf_nsections(&im) && !status; i++) {
        Elf64_Shdr s;
        if (!(status = read(user, h->e_shoff + i * sizeof s, &s, sizeof s)) && s.sh_type != SHT_NULL && s.sh_type != SHT_NOBITS) {
            status = elf_raise_end_or_fail(&im, "a section", s.sh_offset, s.sh_size, &end);
            sum += s.sh_size;
            if (!status && end > loaded && end - loaded > MAX_UNLOADED_BYTES)
                status = elf_fail(&im, "section %u ends %llu bytes after what is loaded, more than %d: strip the file", i,
                    (unsigned long long)(end - loaded), MAX_UNLOADED_BYTES);
        }
    }
    if (status || (status = elf_raise_end_or_fail(&im, "its headers", h->e_phoff, h->e_phnum * sizeof(Elf64_Phdr), &end)) ||
        (elf_nsections(&im) &&
            (status = elf_raise_end_or_fail(&im, "its headers", h->e_shoff, h->e_shnum * sizeof(Elf64_Shdr), &end))))
        return status;
    if (end > sum && end - sum > MAX_UNNAMED_BYTES)
        return elf_fail(&im, "corrupt: %llu of its bytes belong to no section", (unsigned long long)(end - sum));
    *end_offset = end > sizeof start ? end : sizeof start;
    return DV_OK;
}

int dv__elf_check(const unsigned char *data, size_t size, const char *where)
{
    elf_image im = { .data = data, .size = size, .where = where };
    int status;
    if ((status = elf_check_header(&im)) || (status = elf_check_header_tables(&im)) || (status = elf_check_segments(&im)) ||
        (status = elf_check_segment_placement(&im)) || (status = elf_check_sections(&im)) || (status = elf_check_dynamic(&im)) ||
        (status = elf_check_symbols(&im)) || (status = elf_check_exports(&im)) || (status = elf_check_dynamic_names(&im)) ||
        (status = elf_check_relocations(&im)))
        return status;
    return (status = elf_check_versions(&im)) ? status : elf_check_initialiser_functions(&im);
}

size_t dv__elf_list_loaded_segments(const unsigned char *data, const char *base, dv__segment *segments, size_t capacity)
{
    elf_image im = { .data = data };
    size_t n = 0;
    memcpy(&im.head, data, sizeof im.head);
    for (unsigned i = 0; i < im.head.e_phnum && n < capacity; i++) {
        const Elf64_Phdr p = elf_get_segment(&im, i);
        if (p.p_type == PT_LOAD && p.p_flags & PF_R)
            segments[n++] = (dv__segment){ (const char *)((uintptr_t)base + p.p_vaddr), p.p_memsz };
    }
    return n;
}

void dv__elf_for_each_needed(const unsigned char *data, size_t size, dv__elf_needed_fn fn, void *user)
{
    elf_image im = { .data = data, .size = size };
    uint64_t search = 0, address = 0;
    memcpy(&im.head, data, sizeof im.head);
    elf_check_segments(&im); /* finds the dynamic section */
    if (!elf_try_find_dynamic_value(&im, DT_STRTAB, &address) || !elf_try_find_file_offset(&im, address, 1, &im.strings_at))
        return;
    const char *strings = (const char *)data + im.strings_at;
    const bool has_search = elf_try_find_dynamic_value(&im, DT_RUNPATH, &search) ||
        elf_try_find_dynamic_value(&im, DT_RPATH, &search);
    for (uint64_t at = im.dynamic_at;; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, data + at, sizeof d);
        if (d.d_tag == DT_NULL)
            return;
        if (d.d_tag == DT_NEEDED)
            fn(user, strings + d.d_un.d_val, has_search ? strings + search : "");
    }
}
