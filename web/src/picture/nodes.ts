// Shapes of nodes, without sigma's second rendering for picking, which takes half of a frame; see `near.ts`.

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

/** A switch. sigma's own square has its label on the right. */
export class Square extends NodeSquareProgram {
  constructor(gl: WebGLRenderingContext, _: WebGLFramebuffer | null, sigma: Sigma) {
    super(gl, null, sigma);
  }

  override drawLabel = drawName as NodeSquareProgram["drawLabel"];
}
