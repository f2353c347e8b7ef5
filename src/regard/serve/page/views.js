// The views of the page, in the order of the menu: first those that use a model, one of which a model is met in. Each stands in a module of its own and offers
//   id            its name in the address, and in the words: `ID.menu`, `ID.lead`, perhaps `ID.title`
//   suits(model)  whether it has something to show for a model; the menu leaves it out where it has not
//   open(root, app)  fills `root`, and gives back what is to be closed when the reader leaves

import { view as attention } from "./attention.js";
import { view as beam } from "./beam.js";
import { view as explore } from "./explore.js";
import { view as inside } from "./inside.js";
import { view as labels } from "./labels.js";
import { view as music } from "./music.js";
import { view as translate } from "./translate.js";
import { view as walk } from "./walk.js";

export const VIEWS = [translate, labels, music, explore, attention, beam, walk, inside];
