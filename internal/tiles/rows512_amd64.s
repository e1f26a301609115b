#include "textflag.h"

// As accumulateRows, with one accumulator of eight lanes, Z0: half of the instructions for a stripe.

// stripe adds the 64 bytes in Z2.
#define stripe \
	VPXORQ   (DI), Z2, Z3; \
	VPSRLQ   $32, Z3, Z4;  \
	VPMULUDQ Z3, Z4, Z4;   \
	VPSHUFD  $0x4e, Z2, Z2; \
	VPADDQ   Z2, Z0, Z0;   \
	VPADDQ   Z4, Z0, Z0;   \
	ADDQ     $8, DI

#define scramble \
	VPSRLQ   $47, Z0, Z2;      \
	VPXORQ   Z2, Z0, Z0;       \
	VPXORQ   128(DX), Z0, Z0;  \
	VPMULUDQ Z15, Z0, Z2;      \
	VPSRLQ   $32, Z0, Z0;      \
	VPMULUDQ Z15, Z0, Z0;      \
	VPSLLQ   $32, Z0, Z0;      \
	VPADDQ   Z2, Z0, Z0

// func accumulateRows512(acc *[8]uint64, first *byte, halves, skip, stripes int64, secret *[192]byte)
TEXT ·accumulateRows512(SB), NOSPLIT, $0-48
	MOVQ acc+0(FP), AX
	MOVQ first+8(FP), SI
	MOVQ halves+16(FP), R8
	MOVQ skip+24(FP), R9
	MOVQ stripes+32(FP), BX
	MOVQ secret+40(FP), DX

	VMOVDQU64    (AX), Z0
	MOVQ         $2654435761, R10
	VPBROADCASTQ R10, Z15
	MOVQ         R8, CX
	TESTQ        $1, R8
	JZ           even

block:
	MOVQ $16, R11
	MOVQ DX, DI

one:
	VMOVDQU (SI), Y2
	ADDQ    $32, SI
	DECQ    CX
	JNZ     second
	ADDQ    R9, SI
	MOVQ    R8, CX

second:
	VINSERTI64X4 $1, (SI), Z2, Z2
	ADDQ         $32, SI
	DECQ         CX
	JNZ          next
	ADDQ         R9, SI
	MOVQ         R8, CX

next:
	stripe
	DECQ R11
	JZ   stir
	DECQ BX
	JNZ  one
	JMP  done

stir:
	scramble
	DECQ BX
	JNZ  block
	JMP  done

even:
	SHRQ $1, R8
	MOVQ R8, CX

evenblock:
	MOVQ $16, R11
	MOVQ DX, DI

evenone:
	VMOVDQU64 (SI), Z2
	ADDQ      $64, SI
	stripe
	DECQ      CX
	JZ        evenrow

evennext:
	DECQ R11
	JZ   evenstir
	DECQ BX
	JNZ  evenone
	JMP  done

evenrow:
	ADDQ R9, SI
	MOVQ R8, CX
	JMP  evennext

evenstir:
	scramble
	DECQ BX
	JNZ  evenblock

done:
	VMOVDQU64 Z0, (AX)
	VZEROUPPER
	RET
