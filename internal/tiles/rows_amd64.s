#include "textflag.h"

// Two accumulators of four lanes, Y0 and Y1, take the two halves of each stripe. A half may lie anywhere: lanes only meet
// within sixteen bytes.
//
// Registers: SI the next half, CX halves left in its row, R8 halves in a row, R9 bytes from a row's end to the next row,
// BX stripes left, R11 stripes left in the block, DX the secret, DI the secret at this stripe, Y15 the prime of scrambling.

// half adds 32 bytes to an accumulator: the product of the halves of each keyed lane, and the neighbouring lane itself.
#define half(key, acc) \
	VMOVDQU  (SI), Y2;        \
	VPXOR    key(DI), Y2, Y3; \
	VPSHUFD  $0x31, Y3, Y4;   \
	VPMULUDQ Y3, Y4, Y4;      \
	VPSHUFD  $0x4e, Y2, Y2;   \
	VPADDQ   Y2, acc, acc;    \
	VPADDQ   Y4, acc, acc;    \
	ADDQ     $32, SI

// scramble stirs an accumulator between two blocks.
#define scramble(key, acc) \
	VPSRLQ   $47, acc, Y2;      \
	VPXOR    Y2, acc, acc;      \
	VPXOR    key(DX), acc, acc; \
	VPMULUDQ Y15, acc, Y2;      \
	VPSRLQ   $32, acc, acc;     \
	VPMULUDQ Y15, acc, acc;     \
	VPSLLQ   $32, acc, acc;     \
	VPADDQ   Y2, acc, acc

// func accumulateRows(acc *[8]uint64, first *byte, halves, skip, stripes int64, secret *[192]byte)
TEXT ·accumulateRows(SB), NOSPLIT, $0-48
	MOVQ acc+0(FP), AX
	MOVQ first+8(FP), SI
	MOVQ halves+16(FP), R8
	MOVQ skip+24(FP), R9
	MOVQ stripes+32(FP), BX
	MOVQ secret+40(FP), DX

	VMOVDQU      (AX), Y0
	VMOVDQU      32(AX), Y1
	MOVQ         $2654435761, R10
	MOVQ         R10, X15
	VPBROADCASTQ X15, Y15
	MOVQ         R8, CX
	TESTQ        $1, R8
	JZ           even

block:
	MOVQ $16, R11
	MOVQ DX, DI

stripe:
	half(0, Y0)
	DECQ CX
	JNZ  second
	ADDQ R9, SI
	MOVQ R8, CX

second:
	half(32, Y1)
	DECQ CX
	JNZ  next
	ADDQ R9, SI
	MOVQ R8, CX

next:
	ADDQ $8, DI
	DECQ R11
	JZ   stir
	DECQ BX
	JNZ  stripe
	JMP  done

stir:
	scramble(128, Y0)
	scramble(160, Y1)
	DECQ BX
	JNZ  block
	JMP  done

	// Rows of whole stripes: they are counted in stripes.

even:
	SHRQ $1, R8
	MOVQ R8, CX

evenblock:
	MOVQ $16, R11
	MOVQ DX, DI

evenstripe:
	half(0, Y0)
	half(32, Y1)
	ADDQ $8, DI
	DECQ CX
	JZ   evenrow

evennext:
	DECQ R11
	JZ   evenstir
	DECQ BX
	JNZ  evenstripe
	JMP  done

evenrow:
	ADDQ R9, SI
	MOVQ R8, CX
	JMP  evennext

evenstir:
	scramble(128, Y0)
	scramble(160, Y1)
	DECQ BX
	JNZ  evenblock

done:
	VMOVDQU Y0, (AX)
	VMOVDQU Y1, 32(AX)
	VZEROUPPER
	RET
