/** Markdown of models, sanitised. Only the last block of a growing text is parsed again. */
import DOMPurify from "dompurify";
import { Marked, type Tokens } from "marked";
import { memo } from "preact/compat";
import { useMemo, useRef } from "preact/hooks";

import { showControls, stripAnsi } from "../model/format";
import { type Block, NO_BLOCKS, hasGrownEnough, splitBlocks } from "../model/markdown_blocks";
import { CodeBlock } from "./code";
import { trustHtml } from "./trusted_html";

const SAFE_LINK = /^(?:https?:|mailto:)/i;
/** Images of the gateway, and images that are part of the text. Others would tell their server who reads this. */
const OWN_IMAGE = /^(?:\/api\/media\/[\w.-]+$|data:image\/(?:png|jpeg|gif|webp);base64,)/i;

const escapeHtml = (text: string) =>
  text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

const markdown = new Marked({
  gfm: true,
  async: false,
  renderer: {
    // HTML in the text of a model is shown, not used.
    html: ({ text }: Tokens.HTML | Tokens.Tag) => (/^<br\s*\/?>$/i.test(text.trim()) ? "<br>" : escapeHtml(text)),
    image: ({ href, text }: Tokens.Image) =>
      OWN_IMAGE.test(href)
        ? `<img src="${escapeHtml(href)}" alt="${escapeHtml(text)}" loading="lazy">`
        : `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`,
  },
});

// Set once: DOMPurify would otherwise read it again for each text.
DOMPurify.setConfig({
  ALLOWED_TAGS: (
    "a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i img input kbd li ol p pre s strong sub sup table tbody td th thead tr ul"
  ).split(" "),
  ALLOWED_ATTR: ["align", "alt", "checked", "disabled", "href", "loading", "src", "start", "title", "type"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    if (!SAFE_LINK.test(node.getAttribute("href") ?? "")) node.removeAttribute("href");
    node.setAttribute("rel", "noopener noreferrer");
    node.setAttribute("target", "_blank");
  } else if (node.nodeName === "IMG") {
    if (!OWN_IMAGE.test(node.getAttribute("src") ?? "")) node.remove();
  } else if (node.nodeName === "TABLE" || node.nodeName === "PRE") {
    node.setAttribute("tabindex", "0"); // They scroll, so the keyboard must reach them.
  } else if (node.nodeName === "INPUT") {
    node.setAttribute("type", "checkbox");
    node.setAttribute("disabled", "");
    node.setAttribute("aria-label", node.hasAttribute("checked") ? "done" : "open");
  }
});

/** Return the HTML of Markdown, safe to put into the page; undefined if it is nested too deeply for the parser. */
export function renderMarkdown(source: string): string | undefined {
  try {
    return DOMPurify.sanitize(markdown.parse(showControls(source)) as string);
  } catch {
    return undefined;
  }
}

export const Markdown = memo(function Markdown({ text, isGrowing = false }: { text: string; isGrowing?: boolean }) {
  const previous = useRef(NO_BLOCKS);
  if (!isGrowing || hasGrownEnough(text, previous.current)) previous.current = splitBlocks(text, previous.current);
  const { blocks, definitions } = previous.current;
  return (
    <div class="markdown">
      {blocks.map((block, index) => (
        <BlockView key={index} block={block} definitions={definitions} />
      ))}
    </div>
  );
});

const BlockView = memo(
  function BlockView({ block, definitions }: { block: Block; definitions: string }) {
    const html = useMemo(() => {
      if (block.code !== undefined || block.isPlain) return undefined;
      const rendered = renderMarkdown(definitions === "" ? block.source : `${block.source}\n\n${definitions}`);
      return rendered === undefined ? undefined : trustHtml(rendered);
    }, [block.source, block.code, definitions]);
    if (block.code !== undefined) return <CodeBlock code={block.code} language={block.language} />;
    if (html === undefined) return <p class="plain">{showControls(stripAnsi(block.source))}</p>;
    return <div dangerouslySetInnerHTML={{ __html: html as unknown as string }} />;
  },
  (before, after) => before.block.source === after.block.source && before.definitions === after.definitions,
);
