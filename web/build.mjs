// The page in four files: one script, one style sheet, the page itself and its icon. Arguments: the folder for them.
import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const folder = process.argv[2] ?? "../src/weft/web/dist";
mkdirSync(folder, { recursive: true });
await build({
  entryPoints: { console: "src/main.ts" },
  outdir: folder,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "inline", // licences of what is bundled go with it
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) copyFileSync(join("src", name), join(folder, name));
