// Shapes of nodes, drawn once. sigma would draw each a second time, unseen, to know what is under the pointer; that is
// half of a frame, and `near.ts` knows it for nothing.

import { NodeSquareProgram } from "@sigma/node-square";
import type Sigma from "sigma";
import { NodePointProgram } from "sigma/rendering";
import { drawName } from "./names";

/** A host. */
export class Dot extends NodePointProgram {
  constructor(gl: WebGLRenderingContext, _: WebGLFramebuffer | null, sigma: Sigma) {
    super(gl, null, sigma);
  }
}

/** A switch; sigma's own square writes names to its right. */
export class Square extends NodeSquareProgram {
  constructor(gl: WebGLRenderingContext, _: WebGLFramebuffer | null, sigma: Sigma) {
    super(gl, null, sigma);
  }

  override drawLabel = drawName as NodeSquareProgram["drawLabel"];
}
