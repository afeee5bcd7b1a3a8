/** A menu behind a button: arrows move, Escape closes, the focus returns to the button. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

import { Icon, type IconName } from "./icons";
import { IconButton } from "./controls";

export interface MenuItem {
  label: string;
  icon?: IconName;
  isDanger?: boolean;
  /** A link that downloads, instead of an action. */
  download?: string;
  onSelect?: () => void;
}

export function Menu({ label, items, icon = "more" }: { label: string; items: MenuItem[]; icon?: IconName }) {
  const isOpen = useSignal(false);
  const root = useRef<HTMLDivElement>(null);

  // Before the next key press, however quick it is.
  useLayoutEffect(() => {
    if (!isOpen.value) return;
    root.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const closeOutside = (event: Event) => {
      if (event.target instanceof Node && root.current?.contains(event.target) === false) isOpen.value = false;
    };
    document.addEventListener("pointerdown", closeOutside);
    return () => document.removeEventListener("pointerdown", closeOutside);
  }, [isOpen.value]);

  const close = () => {
    isOpen.value = false;
    root.current?.querySelector<HTMLElement>("button")?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!isOpen.value) return;
    const entries = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      const index = entries.indexOf(document.activeElement as HTMLElement);
      entries[(index + step + entries.length) % entries.length]?.focus();
    } else if (event.key === "Escape") {
      close();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div class="menu" ref={root} onKeyDown={onKeyDown}>
      <IconButton icon={icon} label={label} aria-haspopup="menu" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)} />
      {isOpen.value && (
        <div class="menu-list" role="menu" aria-label={label}>
          {items.map((item) => (
            <MenuEntry key={item.label} item={item} onDone={close} />
          ))}
        </div>
      )}
    </div>
  );
}

function MenuEntry({ item, onDone }: { item: MenuItem; onDone: () => void }) {
  const content = (
    <>
      {item.icon !== undefined && <Icon name={item.icon} />}
      {item.label}
    </>
  );
  const className = `menu-item${item.isDanger === true ? " danger" : ""}`;
  if (item.download !== undefined) {
    return (
      <a role="menuitem" tabIndex={-1} class={className} href={item.download} download onClick={onDone}>
        {content}
      </a>
    );
  }
  const select = () => {
    onDone();
    item.onSelect?.();
  };
  return (
    <button type="button" role="menuitem" tabIndex={-1} class={className} onClick={select}>
      {content}
    </button>
  );
}
