"""The native half of segments, as LLVM IR: one loop that runs any list of kernels, which is data.

A list costs nothing to compile, and kernels that several plans have in common exist once. In memory it is a header of
``HEADER`` bytes (number of kernels, most buffers of one, whether any is parallel, most sites of one) and a record of
``RECORD`` bytes for each kernel; the last part holds, for each buffer of each kernel, the position of its address in the
segment's array, and a byte offset.
"""

from __future__ import annotations

from firebrick.backends.cpu.runtime.forkjoin import CALLER_BUDGET, CALLER_SCRATCH, ENTER, LEAVE, PARALLEL_FOR, TICKS

RUN, SEQUENCES, ADDRESSES = "firebrick_run", "firebrick_sequences", "firebrick_addresses"
HEADER, RECORD, BUFFER, SPAN = 32, 48, 16, 16

# A record: address of the kernel, grid, chunk (0: direct), address of its buffers' part, how many buffers, whether to look at
# the clock before it. With -1 buffers it takes the segment's own array, at the byte offset that replaces the address. A record
# without a kernel is a jump: its grid is the distance of the next record, its chunk whether this holds only if the byte that
# its buffer begins with is 0. With -2 buffers the kernel is ``SEQUENCES``, and the address is that of its list: a header of
# ``HEADER`` bytes (most buffers of a kernel), for each sequence the numbers of its first record and of the first one after it
# (``SPAN`` bytes), and the records.
RUNNER = f"""
define i64 @{RUN}(ptr %program, ptr %bufs, ptr %pool, ptr %faults, i64 %start) {{
entry:
  %count = load i64, ptr %program
  %slotsp = getelementptr i8, ptr %program, i64 8
  %slots = load i64, ptr %slotsp
  %parallelp = getelementptr i8, ptr %program, i64 16
  %parallelw = load i64, ptr %parallelp
  %parallel = icmp ne i64 %parallelw, 0
  %records = getelementptr i8, ptr %program, i64 {HEADER}
  %table = alloca ptr, i64 %slots, align 16
  %scratchp = getelementptr i8, ptr %pool, i64 {CALLER_SCRATCH}
  %scratch = load ptr, ptr %scratchp
  %budgetp = getelementptr i8, ptr %pool, i64 {CALLER_BUDGET}
  %budget = load i64, ptr %budgetp
  %since = call i64 @{TICKS}()
  %sitesp = getelementptr i8, ptr %program, i64 24
  %sites = load i64, ptr %sitesp
  %fresh = icmp eq i64 %start, 0
  br i1 %fresh, label %clear, label %begin
clear:
  %word = phi i64 [ 0, %entry ], [ %word1, %clear ]
  %wordp = getelementptr i64, ptr %faults, i64 %word
  store atomic i64 0, ptr %wordp monotonic, align 8
  %word1 = add i64 %word, 1
  %payloads = icmp ule i64 %word1, %sites
  br i1 %payloads, label %clear, label %begin
begin:
  br i1 %parallel, label %enter, label %next
enter:
  call void @{ENTER}(ptr %pool)
  br label %next
next:
  %k = phi i64 [ %start, %begin ], [ %start, %enter ], [ %k1, %ran ], [ %far, %jump ], [ %near, %test ]
  %later = phi i1 [ false, %begin ], [ false, %enter ], [ true, %ran ], [ true, %jump ], [ true, %test ]
  %left = icmp slt i64 %k, %count
  br i1 %left, label %one, label %end
one:
  %at = mul i64 %k, {RECORD}
  %record = getelementptr i8, ptr %records, i64 %at
  %kernel = load ptr, ptr %record
  %gridp = getelementptr i8, ptr %record, i64 8
  %grid = load i64, ptr %gridp
  %chunkp = getelementptr i8, ptr %record, i64 16
  %chunk = load i64, ptr %chunkp
  %placesp = getelementptr i8, ptr %record, i64 24
  %numberp = getelementptr i8, ptr %record, i64 32
  %number = load i64, ptr %numberp
  %lookp = getelementptr i8, ptr %record, i64 40
  %lookw = load i64, ptr %lookp
  %looks = icmp ne i64 %lookw, 0
  %look = and i1 %looks, %later
  br i1 %look, label %clock, label %buffers
clock:
  %now = call i64 @{TICKS}()
  %spent = sub i64 %now, %since
  %long = icmp ugt i64 %spent, %budget
  br i1 %long, label %end, label %buffers
buffers:
  %own = icmp slt i64 %number, 0
  br i1 %own, label %special, label %gather
special:
  %several = icmp eq i64 %number, -2
  br i1 %several, label %list, label %slice
list:
  %inner = load ptr, ptr %placesp
  store ptr %inner, ptr %table
  %second = getelementptr ptr, ptr %table, i64 1
  store ptr %bufs, ptr %second
  br label %launch
slice:
  %distance = load i64, ptr %placesp
  %part = getelementptr i8, ptr %bufs, i64 %distance
  br label %launch
gather:
  %places = load ptr, ptr %placesp
  %any = icmp ne i64 %number, 0
  br i1 %any, label %buffer, label %launch
buffer:
  %i = phi i64 [ 0, %gather ], [ %i1, %buffer ]
  %placeat = mul i64 %i, {BUFFER}
  %place = getelementptr i8, ptr %places, i64 %placeat
  %fromat = load i64, ptr %place
  %from = getelementptr i8, ptr %bufs, i64 %fromat
  %base = load ptr, ptr %from
  %offsetp = getelementptr i8, ptr %place, i64 8
  %offset = load i64, ptr %offsetp
  %pointer = getelementptr i8, ptr %base, i64 %offset
  %to = getelementptr ptr, ptr %table, i64 %i
  store ptr %pointer, ptr %to
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, %number
  br i1 %again, label %buffer, label %launch
launch:
  %args = phi ptr [ %part, %slice ], [ %table, %gather ], [ %table, %buffer ], [ %table, %list ]
  %shared = icmp ne i64 %chunk, 0
  %jumps = icmp eq ptr %kernel, null
  br i1 %jumps, label %jump, label %go
jump:
  %far = add i64 %k, %grid
  br i1 %shared, label %test, label %next
test:
  %flagp = load ptr, ptr %args
  %flag = load i8, ptr %flagp
  %false = icmp eq i8 %flag, 0
  %by = select i1 %false, i64 %grid, i64 1
  %near = add i64 %k, %by
  br label %next
go:
  br i1 %shared, label %crew, label %alone
crew:
  call void @{PARALLEL_FOR}(ptr %pool, ptr %kernel, ptr %args, i64 %grid, i64 %chunk, ptr %faults)
  br label %ran
alone:
  call void %kernel(ptr %args, i64 0, i64 %grid, ptr %scratch, ptr %faults)
  br label %ran
ran:
  %site = load atomic i32, ptr %faults monotonic, align 4
  %fault = icmp ne i32 %site, 0
  %k1 = add i64 %k, 1
  br i1 %fault, label %end, label %next
end:
  %faulty = phi i1 [ false, %next ], [ false, %clock ], [ true, %ran ]
  br i1 %parallel, label %leave, label %result
leave:
  call void @{LEAVE}(ptr %pool)
  br label %result
result:
  br i1 %faulty, label %broken, label %whole
broken:
  %code = xor i64 %k, -1
  ret i64 %code
whole:
  %turn = select i1 %left, i64 %k, i64 0
  ret i64 %turn
}}

; A kernel whose work units are sequences of kernels, each of which runs on one thread. ``args`` has the list, and the segment's
; array of buffers. Kernels of sequences report no faults.
define void @{SEQUENCES}(ptr %args, i64 %begin, i64 %end, ptr %scratch, ptr %faults) {{
entry:
  %list = load ptr, ptr %args
  %bufsp = getelementptr ptr, ptr %args, i64 1
  %bufs = load ptr, ptr %bufsp
  %slots = load i64, ptr %list
  %countp = getelementptr i8, ptr %list, i64 8
  %count = load i64, ptr %countp
  %table = alloca ptr, i64 %slots, align 16
  %spans = getelementptr i8, ptr %list, i64 {HEADER}
  %spanbytes = mul i64 %count, {SPAN}
  %records = getelementptr i8, ptr %spans, i64 %spanbytes
  br label %unit
unit:
  %u = phi i64 [ %begin, %entry ], [ %u1, %after ]
  %more = icmp slt i64 %u, %end
  br i1 %more, label %sequence, label %leave
sequence:
  %spanat = mul i64 %u, {SPAN}
  %span = getelementptr i8, ptr %spans, i64 %spanat
  %first = load i64, ptr %span
  %stopp = getelementptr i8, ptr %span, i64 8
  %stop = load i64, ptr %stopp
  br label %next
next:
  %k = phi i64 [ %first, %sequence ], [ %k1, %launch ]
  %left = icmp slt i64 %k, %stop
  br i1 %left, label %one, label %after
one:
  %at = mul i64 %k, {RECORD}
  %record = getelementptr i8, ptr %records, i64 %at
  %kernel = load ptr, ptr %record
  %gridp = getelementptr i8, ptr %record, i64 8
  %grid = load i64, ptr %gridp
  %placesp = getelementptr i8, ptr %record, i64 24
  %places = load ptr, ptr %placesp
  %numberp = getelementptr i8, ptr %record, i64 32
  %number = load i64, ptr %numberp
  %own = icmp slt i64 %number, 0
  br i1 %own, label %slice, label %gather
slice:
  %distance = load i64, ptr %placesp
  %part = getelementptr i8, ptr %bufs, i64 %distance
  br label %launch
gather:
  %any = icmp ne i64 %number, 0
  br i1 %any, label %buffer, label %launch
buffer:
  %i = phi i64 [ 0, %gather ], [ %i1, %buffer ]
  %placeat = mul i64 %i, {BUFFER}
  %place = getelementptr i8, ptr %places, i64 %placeat
  %fromat = load i64, ptr %place
  %from = getelementptr i8, ptr %bufs, i64 %fromat
  %base = load ptr, ptr %from
  %offsetp = getelementptr i8, ptr %place, i64 8
  %offset = load i64, ptr %offsetp
  %pointer = getelementptr i8, ptr %base, i64 %offset
  %to = getelementptr ptr, ptr %table, i64 %i
  store ptr %pointer, ptr %to
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, %number
  br i1 %again, label %buffer, label %launch
launch:
  %given = phi ptr [ %part, %slice ], [ %table, %gather ], [ %table, %buffer ]
  call void %kernel(ptr %given, i64 0, i64 %grid, ptr %scratch, ptr %faults)
  %k1 = add i64 %k, 1
  br label %next
after:
  %u1 = add i64 %u, 1
  br label %unit
leave:
  ret void
}}

; to[i] = the pointer that stands `offset` bytes behind objects[i]; gives the bits that all words `flags` bytes behind have, or
; -1, and no pointers, if the class of an object, the pointer in front of the offset, is not `class`
define i64 @{ADDRESSES}(ptr %objects, ptr %to, i64 %count, i64 %offset, i64 %flags, ptr %class) {{
entry:
  %classat = sub i64 %offset, 8
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %check, label %leave
check:
  %k = phi i64 [ 0, %entry ], [ %k1, %kin ]
  %givenp = getelementptr ptr, ptr %objects, i64 %k
  %given = load ptr, ptr %givenp
  %kindp = getelementptr i8, ptr %given, i64 %classat
  %kind = load ptr, ptr %kindp
  %same = icmp eq ptr %kind, %class
  br i1 %same, label %kin, label %other
other:
  ret i64 -1
kin:
  %k1 = add i64 %k, 1
  %left = icmp slt i64 %k1, %count
  br i1 %left, label %check, label %loop
loop:
  %i = phi i64 [ 0, %kin ], [ %next, %loop ]
  %all = phi i32 [ -1, %kin ], [ %both, %loop ]
  %from = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %from
  %field = getelementptr i8, ptr %object, i64 %offset
  %address = load ptr, ptr %field
  %slot = getelementptr ptr, ptr %to, i64 %i
  store ptr %address, ptr %slot
  %wordp = getelementptr i8, ptr %object, i64 %flags
  %word = load i32, ptr %wordp
  %both = and i32 %all, %word
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %leave
leave:
  %found = phi i32 [ -1, %entry ], [ %both, %loop ]
  %wide = zext i32 %found to i64
  ret i64 %wide
}}
"""
